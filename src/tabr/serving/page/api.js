// Requests to the service: the token, and failures in words.

import { keepToken, token as ownToken } from "./token.js";

/** A request that did not work: a sentence, and words for single columns. */
export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: the server was not reached
    this.columns = new Map();
    this.row = null; // the number of the first row that is wrong
    this.label = ""; // words about a label
  }
}

export class Api {
  /** `askToken` shows a dialog and resolves to a token, or null if there is none. */
  constructor(askToken) {
    this.askToken = askToken;
    this.asking = null;
  }

  async call(method, path, body, { signal, key } = {}) {
    for (;;) {
      const token = ownToken();
      const headers = { Accept: "application/json" };
      if (body) headers["Content-Type"] = "application/json";
      if (token) headers.Authorization = `Bearer ${token}`;
      if (key) headers["Idempotency-Key"] = key;
      let response;
      try {
        response = await fetch(path, {
          method, headers, signal, body: body && write(body),
        });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Failure("The server cannot be reached.");
      }
      const answer = await response.text().then(read).catch(() => null);
      if (response.ok && answer) return answer;
      // Another request may have got a token meanwhile: then try with that one.
      if (response.status === 401 && (token !== ownToken() || (await this.renew()))) continue;
      throw failure(response.status, answer?.detail);
    }
  }

  /** Ask for a token once, however many requests want one. */
  async renew() {
    this.asking ??= this.askToken(Boolean(ownToken())).finally(() => { this.asking = null; });
    const token = await this.asking;
    if (!token) return false;
    keepToken(token);
    return true;
  }
}

// Whole numbers that no float holds are BigInt here, where the browser lets them be.
const MEASURES = new Set(["low", "high", "median"]); // which are drawn, not sent

function read(text) {
  return JSON.parse(text, (name, value, context) => {
    const isLong = Number.isInteger(value) && !Number.isSafeInteger(value);
    const isWhole = isLong && !MEASURES.has(name) && /^-?\d+$/.test(context?.source ?? "");
    return isWhole ? BigInt(context.source) : value;
  });
}

export function write(value) {
  return JSON.stringify(value, (name, part) =>
    typeof part === "bigint" ? JSON.rawJSON?.(String(part)) ?? Number(part) : part);
}

function failure(status, detail) {
  if (!Array.isArray(detail)) {
    return new Failure(sentence(detail ?? `The server answered with error ${status}`), status);
  }
  const rest = detail.filter(({ loc }) => loc[1] !== "rows" && loc[1] !== "labels");
  const problem = new Failure(rest.map(({ msg }) => sentence(msg)).join(" "), status);
  for (const { loc: [, part, row, name], msg } of detail) {
    if (part === "labels") problem.label = sentence(msg);
    if (part !== "rows") continue;
    problem.row ??= row;
    if (row === problem.row && name) problem.columns.set(String(name), sentence(msg));
    else if (!name) problem.message = sentence(msg);
  }
  return problem;
}

function sentence(text) {
  const words = String(text).trim();
  return words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
}

/** A name for one change, so that the same change sent twice happens once. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
