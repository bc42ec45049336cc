// A map without tiles: neighbours around the row, north up.

import { decimalsOf, fixed } from "./format.js";
import { radius, tint } from "./pictures.js";

const KM = 111.32; // of a degree of latitude
const HIGHEST = 330;
const EDGE = 22; // pixels between the outermost dots and the border
const FOOT = 22; // for the ruler
const NEAREST = 0.05; // kilometres that half the map shows at least

/** Where neighbours are, in kilometres to the east and to the north of the row. */
function spotsOf(neighbors, place, latitude, longitude) {
  const shrink = Math.cos((latitude * Math.PI) / 180);
  return neighbors.flatMap((n) => {
    const [lat, lon] = [n.row[place.latitude], n.row[place.longitude]];
    if (!Number.isFinite(lat) || !Number.isFinite(lon)) return [];
    const turn = ((((lon - longitude) % 360) + 540) % 360) - 180; // the short way around
    return [{ n, east: turn * KM * shrink, north: (lat - latitude) * KM }];
  });
}

/** Pixels of a kilometre; one or two far neighbours may not squeeze the others. */
function scaleOf(spots, wide, high) {
  const fits = spots.map(({ east, north }) =>
    Math.min(wide / Math.abs(east), high / Math.abs(north)));
  fits.sort((a, b) => a - b);
  const [all, most] = [fits[0] ?? 1, fits[Math.floor(fits.length / 6)] ?? 1];
  return Math.min(2 * all < most ? most : all, high / NEAREST);
}

/** Draw the map; returns words about it, or null if the row has no place. */
export function drawMap(canvas, row, answer, place, formats) {
  const [latitude, longitude] = [row[place.latitude], row[place.longitude]];
  const width = Math.max(220, canvas.svg.parentElement.clientWidth - 2);
  const height = Math.min(width, HIGHEST);
  const isKnown = Number.isFinite(latitude) && Number.isFinite(longitude);
  canvas.begin(width, isKnown ? height + FOOT : 0);
  if (isKnown) drawAround(canvas, answer, place, formats, { latitude, longitude, width, height });
  canvas.end();
  if (!isKnown) return null;
  return "The cross is this row. Larger dots weigh more."
    + (canvas.svg.querySelector(".away") ? " Dashed ones lie farther out." : "");
}

function drawAround(canvas, answer, place, formats, { latitude, longitude, width, height }) {
  const spots = spotsOf(answer.neighbors, place, latitude, longitude);
  const heaviest = Math.max(...spots.map(({ n }) => n.weight));
  const [cx, cy] = [width / 2, height / 2];
  const scale = scaleOf(spots, cx - EDGE, cy - EDGE);
  for (const { n, east, north } of spots) {
    const [x, y] = [east * scale, -north * scale];
    // What lies outside stands at the border, in its direction.
    const back = Math.min(1, (cx - 14) / Math.abs(x), (cy - 14) / Math.abs(y));
    const [className, share] = tint(formats, answer, n.label);
    const km = Math.hypot(east, north);
    canvas.dot(`dot-${n.id}`, cx + x * back, cy + y * back, radius(n.weight, heaviest),
      back < 1 ? `${className} away` : className, share, n.id,
      `row ${n.id}: label ${formats.labelOf(n.label)}, ${fixed(km, decimalsOf(km, 2))} km away`);
  }
  canvas.path("here", `M${cx - 9} ${cy}h18M${cx} ${cy - 9}v18`, "here");
  drawRuler(canvas, scale, width, height);
  canvas.path("north", `M${width - 18} 12l5 12-5-3-5 3z`, "north");
  canvas.text("north-name", width - 18, 38, "N", "tick");
}

/** A round length in the corner, and rings around the row that are that far apart. */
function drawRuler(canvas, scale, width, height) {
  const power = 10 ** Math.floor(Math.log10(width / 3 / scale));
  const km = [5, 2, 1].map((k) => k * power).find((length) => length * scale <= width / 3);
  const size = km * scale;
  for (let k = 1; k * size < Math.hypot(width, height) / 2; k++) {
    const ring = { cx: width / 2, cy: height / 2, r: k * size, class: "ring" };
    canvas.put(0, `ring-${k}`, "circle", ring);
  }
  canvas.path("ruler", `M2 ${height + FOOT - 10}v5h${size}v-5`, "ruler");
  canvas.text("km", 8 + size, height + FOOT - 4, `${fixed(km, decimalsOf(km, 1))} km`, "small");
}
