import json

from reliability.page import PAGE, to_markdown
from reliability.trials import Trial, keep, read


def test_page_shows_what_was_kept():
    assert to_markdown(read()) in PAGE.read_text("utf-8")


def test_trial_comes_back_with_its_command_and_commit(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["reliability", "files", "--count", "5"])
    trial = Trial("Damaged files", "Bits were turned.", {"files": 5}, held=True)
    path = keep("files", [trial], tmp_path)
    record = json.loads(path.read_text("utf-8"))
    assert record["command"] == "python -m reliability files --count 5"
    assert "commit" in record
    text = to_markdown(read(tmp_path))
    assert "| files | 5 |" in text
    assert "| Damaged files | held | `python -m reliability files --count 5` |" in text


def test_page_says_what_did_not_hold(tmp_path):
    keep("files", [Trial("Files", "All.", {"aborts": 1}, held=False)], tmp_path)
    assert "**did not hold**" in to_markdown(read(tmp_path))


def test_trials_of_one_kind_stand_side_by_side(tmp_path):
    trials = [
        Trial(f"Kills: {name}", "All.", {"kills": n}, held=True)
        for name, n in (("one", 60), ("two", 61))
    ]
    keep("kills", trials, tmp_path)
    text = to_markdown(read(tmp_path))
    assert "### Kills\n\nAll.\n\n| counted | one | two |" in text
    assert "| kills | 60 | 61 |" in text
