"""The library's own presets beside boosted trees and the paper's TabR-S.

In: the run tables and the published figures. Out: a page and its pictures.
"""
