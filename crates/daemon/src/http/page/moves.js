// Moves under way, and what is advised.

import { bytes, seconds } from "./api.js";
import { at, make } from "./dom.js";

function underWay(move) {
  const part = move.size > 0 ? move.copied / move.size : 0;
  const left = move.seconds_left === null ? "" : `, ${seconds(move.seconds_left)} left`;
  const rate = move.rate === null ? "" : `, ${bytes(move.rate)}/s`;
  const text = `${move.disk}: ${move.from} to ${move.to}, ${move.state}`;
  const bar = make("progress", { max: 1, value: part, "aria-label": text });
  return make("div", { class: "card" }, make("h2", {}, text), bar,
    make("p", {}, `${bytes(move.copied)} of ${bytes(move.size)}${rate}${left}`));
}

function advised(move) {
  return make("div", { class: "card" },
    make("h2", {}, `${move.disk}: ${move.from} to ${move.to}`),
    make("p", {}, move.advice),
    make("p", { class: move.reason ? "warn" : "nothing" }, move.reason ? `${move.state}: ${move.reason}` : move.state));
}

const none = (text) => [make("p", { class: "nothing" }, text)];

/** Shows moves of the live view, and a plan where there is one. */
export function show(top, balance) {
  const moves = top.moves.map(underWay);
  at("under-way").replaceChildren(...(moves.length ? moves : none("No disk is moving.")));
  if (!balance) return;
  const list = balance.run && !balance.run.ended ? balance.run.moves : balance.plan?.moves ?? [];
  const text = "Nothing: every disk is where it should be, as far as is known.";
  at("advised").replaceChildren(...(list.length ? list.map(advised) : none(text)));
  const stays = (balance.plan?.stays ?? []).map((one) => make("li", {}, `${one.name}: ${one.reason}`));
  at("stays").replaceChildren(...stays);
}
