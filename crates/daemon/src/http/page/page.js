// The page: asks the daemon every two seconds, and shows what it says.

import { keepToken, needsToken, read } from "./api.js";
import * as datastores from "./datastores.js";
import * as disks from "./disks.js";
import { at, say } from "./dom.js";
import * as events from "./events.js";
import { drawAll } from "./graphs.js";
import * as hosts from "./hosts.js";
import * as machines from "./machines.js";
import * as moves from "./moves.js";

const PERIOD = 2_000;
const VIEWS = ["datastores", "disks", "machines", "moves", "hosts", "events"];

/** What is known. */
const known = { top: null, records: new Map(), balance: null, events: null, hosts: null, fleetDisks: null, silentSince: null };

let view = VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "datastores";

/** What is asked less often: how often in periods, and what becomes of the answer. */
const slow = [
  { every: 3, of: () => true, path: () => "/healthz", take: health },
  { every: 8, of: () => view === "datastores", path: () => "/v1/datastores", take: (all) => { known.records = new Map(all.map((one) => [one.name, one])); } },
  { every: 15, of: () => view === "moves", path: () => "/v1/balance", take: (balance) => { known.balance = balance; } },
  { every: 1, of: () => view === "hosts", path: () => "/v1/hosts", take: (all) => { known.hosts = all; } },
  { every: 3, of: () => view === "hosts", path: () => "/v1/fleet/disks?limit=100", take: (all) => { known.fleetDisks = all; } },
  { every: 3, of: () => view === "events", path: () => `/v1/events?since=${Math.floor(Date.now() / 1000) - 86_400}`, take: (page) => { known.events = page.events; } },
];

function health(now) {
  say(at("host"), `${now.host.name} · ${now.version}`);
  at("state").className = now.status === "ok" ? "good" : "bad";
  say(at("state"), now.status === "ok" ? "In order" : `${now.status}`);
  complain("health", first(now.failed));
  at("warning").hidden = now.warnings.length === 0;
  say(at("warning"), first(now.warnings));
}

/** The first of many lines. */
function first(lines) {
  const more = lines.length > 5 ? [`and ${lines.length - 5} more`] : [];
  return [...lines.slice(0, 5), ...more].join("\n");
}

const complaints = new Map();

/** Says what is wrong, or that it is not any more. */
function complain(of, text) {
  if (text) complaints.set(of, text);
  else complaints.delete(of);
  at("trouble").hidden = complaints.size === 0;
  say(at("trouble"), [...complaints.values()].join("\n"));
}

function show() {
  for (const name of VIEWS) {
    const isIt = name === view;
    at(name).hidden = !isIt;
    const tab = at(`tab-${name}`);
    tab.setAttribute("aria-selected", `${isIt}`);
    tab.tabIndex = isIt ? 0 : -1;
  }
  if (!known.top) return;
  if (view === "datastores") datastores.show(known.top, known.records);
  if (view === "disks") disks.show();
  if (view === "machines") machines.show(known.top);
  if (view === "moves") moves.show(known.top, known.balance);
  if (view === "hosts" && known.hosts) hosts.show(known.hosts, known.fleetDisks);
  if (view === "events" && known.events) events.show(known.events);
  drawAll();
}

function answered(top) {
  const now = Date.now() / 1000;
  known.top = top;
  known.silentSince = null;
  complain("silence", "");
  at("login").hidden = true;
  datastores.see(now, top);
  disks.see(now, top);
}

function failed(error) {
  if (error.status === 401 || error.status === 403) {
    at("login").hidden = error.status === 403;
    complain("silence", error.status === 403 ? error.message : "");
    say(at("refused"), error.message);
    say(at("state"), "Not let in");
    return;
  }
  known.silentSince ??= new Date();
  datastores.gap(Date.now() / 1000);
  const since = known.silentSince.toTimeString().slice(0, 8);
  at("state").className = "bad";
  say(at("state"), "No answer");
  complain("silence", `${error.message} Nothing was heard since ${since}; shown is what it said last.`);
}

let turn = 0;
let wait = null;

async function ask() {
  clearTimeout(wait);
  if (needsToken()) {
    at("login").hidden = false;
    say(at("state"), "Waiting for a token");
    return;
  }
  try {
    answered(await read("/v1/top"));
    const due = slow.filter((one) => one.of() && (turn % one.every === 0 || one.view !== view));
    await Promise.all(due.map(async (one) => {
      one.view = view;
      one.take(await read(one.path()));
    }));
    turn += 1;
  } catch (error) {
    for (const one of slow) one.view = null;
    failed(error);
  }
  show();
  document.documentElement.dataset.turns = `${turn}`;
  wait = setTimeout(ask, PERIOD);
}

function choose(name) {
  view = name;
  history.replaceState(null, "", `#${name}`);
  show();
  ask();
}

for (const name of VIEWS) at(`tab-${name}`).addEventListener("click", () => choose(name));

at("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = VIEWS[(VIEWS.indexOf(view) + step + VIEWS.length) % VIEWS.length];
  choose(next);
  at(`tab-${next}`).focus();
  event.preventDefault();
});

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(at("token").value.trim());
  at("token").value = "";
  ask();
});

addEventListener("hashchange", () => {
  const name = location.hash.slice(1);
  if (VIEWS.includes(name) && name !== view) choose(name);
});

show();
ask();
