//! From the state of the view to lines of text.

use super::blame;
use super::copies;
use super::format::{mebibytes, micros, rate};
use super::machines;
use super::screen::{Mode, Screen, View};
use super::wide;
use headgate_api::latency::{NarrowedFor, Verdict};
use headgate_api::top::{LatencyMicros, Load, TopDatastore, TopDisk, TopStream};
use headgate_api::trouble::TroubleState;
use headgate_api::types::ServiceState;
use headgate_api::windows::{BoardStatus, Bound, Held};
use headgate_model::{LimitMode, Policy};
use headgate_placement::State;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

const HEAD: &str =
    "DISK              IOPS  MiB/s   QUEUE p50/99  DEVICE p50/99  OUT   RSRV  LIMIT  SHARES   GOT";

const HELP: &str = "\
q  quit                          s  next sort order
/  filter by disk, vm, datastore n i w l d r  sort by name, IOPS, bandwidth,
Esc  no filter                      queue time, device time, reservation
b  who waits for whom, or what disks do
Up Down PgUp PgDn  scroll        ?  this help

On a datastore's line: device time, requests at the device / window, requests
that wait for it, and what is reserved of the capacity.

IOPS    requests completed per second, over the last 2 seconds
QUEUE   from arrival to dispatch; u, m, s: micro-, milli-, seconds
DEVICE  from dispatch to completion
OUT     requests outstanding, those that wait included
RSRV    reservation in force, in normalised IOs per second; red with ! when
        requests waited for 5 seconds and yet it was missed by over 3 %
LIMIT   limit in force; ~ binds only beside others, + may be passed for a time,
        * reads or writes have one of their own
SHARES  weight in force
GOT     service got over the part that the shares give among the busy disks;
        reservations and limits move it away from 1.00
window  of a datastore whose window follows its latency: requests, what its
        shares bring it, latency over all hosts of the threshold, hosts
narrowed  for a reservation of a disk that keeps too few requests outstanding
        to get it behind a full window, or for a latency target
p99=..  the latency target that a disk misses, and why
HELD    what a disk holds until its storage takes it, and why; FAILING: what the
        storage failed within the last 10 seconds
copy    of a disk, that moves or as of one instant, where either is; it is in no other line
WAIT    requests under way; NEIGHB, LIMIT, WINDOW, OWN, DEVICE, HELD: parts of their
        time, in per cent, over the last five seconds
prio    IOPS and part of the disk's service by priority, highest first
Any key closes this help.";

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    let width = usize::from(frame.area().width);
    frame.render_widget(Paragraph::new(column_heads(screen.view, width)).bold().reversed(), head);
    let lines = lines(screen, width);
    let most = lines.len().saturating_sub(usize::from(body.height));
    screen.offset = screen.offset.min(most);
    let offset = u16::try_from(screen.offset).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(Text::from(lines)).scroll((offset, 0)), body);
    frame.render_widget(foot_line(screen), foot);
    if screen.mode == Mode::Help {
        let [area] = Layout::vertical([Constraint::Max(33)]).areas(frame.area());
        frame.render_widget(Clear, area);
        frame.render_widget(
            Paragraph::new(HELP).block(Block::bordered().title(" headgate top ")),
            area,
        );
    }
}

fn foot_line(screen: &Screen) -> Line<'_> {
    if let Some(trouble) = &screen.trouble {
        return Line::from(trouble.as_str()).style(Style::new().fg(Color::Red));
    }
    if screen.mode == Mode::Filter {
        return Line::from(format!("filter: {}_", screen.filter));
    }
    let filter = if screen.filter.is_empty() {
        String::new()
    } else {
        format!("   filter: {}", screen.filter)
    };
    Line::from(format!(
        "q quit  ? help  b blame  s sort: {}  / filter{filter}",
        screen.sort.title()
    ))
    .dim()
}

/// A terminal of 80 columns has no room for what is nice to have.
fn is_wide(width: usize) -> bool {
    width >= HEAD.len()
}

fn column_heads(view: View, width: usize) -> String {
    if view == View::Blame {
        return blame::HEAD.to_owned();
    }
    if is_wide(width) {
        return HEAD.to_owned() + wide::heads(HEAD.len(), width);
    }
    "DISK            IOPS MiB/s   QUEUE    DEVICE   OUT   RSRV  LIMIT SHARES  GOT".to_owned()
}

/// Everything below the column heads, as text without colours: what `--once` prints.
pub(super) fn plain(screen: &Screen, width: usize) -> String {
    let mut text = column_heads(screen.view, width);
    for line in lines(screen, width) {
        text.push('\n');
        text.push_str(
            line.spans.iter().map(|span| span.content.as_ref()).collect::<String>().trim_end(),
        );
    }
    text.push('\n');
    text
}

fn lines(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for datastore in &screen.top.datastores {
        let disks = screen.disks(datastore);
        if disks.is_empty() && !screen.filter.is_empty() {
            continue;
        }
        lines.push(datastore_line(datastore));
        lines.extend(window_line(datastore));
        lines.extend(narrowed_line(datastore));
        lines.extend(copies::lines(&screen.top, datastore));
        for disk in disks {
            if screen.view == View::Blame {
                lines.push(blame::line(disk, width));
                continue;
            }
            let mut line = disk_line(disk, width);
            line.spans.extend(wide::rest(screen, disk, line.width()..HEAD.len(), width));
            lines.push(line);
            lines.extend(trouble_line(disk));
            lines.extend(depth_line(disk));
            lines.extend(latency_line(disk));
            lines.extend(streams_line(disk));
        }
    }
    lines.extend(machines::lines(&screen.top, &screen.filter));
    if lines.is_empty() && screen.trouble.is_none() {
        lines.push(Line::from("nothing to show"));
    }
    lines
}

/// What is wrong with a disk's storage.
fn trouble_line(disk: &TopDisk) -> Option<Line<'static>> {
    let trouble = disk.trouble.as_ref()?;
    let word = match trouble.state {
        TroubleState::Held => "HELD",
        TroubleState::Failing => "FAILING",
    };
    Some(Line::from(format!("    {word}: {trouble}")).fg(Color::Red))
}

/// What a guest has to do for its reservation, where no window helps.
fn depth_line(disk: &TopDisk) -> Option<Line<'static>> {
    let depth = disk.needed_depth?;
    let text = format!("    its reservation needs {depth} requests outstanding at all times");
    Some(Line::from(text).fg(Color::Red))
}

/// What is known of a latency target that is missed.
fn latency_line(disk: &TopDisk) -> Option<Line<'static>> {
    let now = disk.latency.as_ref().filter(|now| now.verdict != Verdict::Met)?;
    Some(Line::from(format!("    {now}")).fg(Color::Red))
}

fn datastore_line(datastore: &TopDatastore) -> Line<'static> {
    let load = &datastore.load;
    let name = Span::from(datastore.name.to_string()).bold().fg(Color::Cyan);
    if datastore.state != ServiceState::Serving {
        let state = datastore.state.as_str();
        let text = format!(" {state}: see 'headgate datastore show'");
        return Line::from(vec![name, text.fg(Color::Red)]);
    }
    let mut spans = vec![name];
    match datastore.placement {
        State::Active => {}
        State::Closed => spans.push("  closed".fg(Color::Yellow)),
        State::Maintenance => {
            let disks = datastore.disks.len();
            spans.push(format!("  MAINTENANCE, {disks} disks left").fg(Color::Yellow));
        }
    }
    if datastore.overbooked_iops > 0 {
        spans.push(format!("  OVERBOOKED by {}", datastore.overbooked_iops).fg(Color::Red));
    }
    let capacity = datastore.capacity_iops.map_or_else(|| "?".into(), |iops| iops.to_string());
    spans.push(Span::from(format!(
        "  {} IOPS  {} MiB/s  device {} {}/{}  wait {}  rsrv {}/{capacity}",
        rate(load.iops),
        mebibytes(load.bytes_per_sec),
        pair(load.device_micros),
        datastore.in_flight,
        requests(datastore.window),
        datastore.queued,
        datastore.reserved_iops,
    )));
    Line::from(spans)
}

/// A window that need not be whole.
fn requests(window: f64) -> String {
    if window.fract() == 0.0 { format!("{window:.0}") } else { format!("{window:.1}") }
}

/// Whom a window is narrowed for, and what that costs.
fn narrowed_line(datastore: &TopDatastore) -> Option<Line<'static>> {
    let narrowed = datastore.narrowed.as_ref()?;
    let text = format!(
        "    window {} narrowed for the {} of {}: {} IOPS in all, {} before",
        requests(datastore.window),
        match narrowed.promise {
            NarrowedFor::Reservation => "reservation",
            NarrowedFor::Latency => "latency target",
        },
        narrowed.disk,
        rate(narrowed.now_iops as f64),
        rate(narrowed.before_iops as f64),
    );
    Some(Line::from(text).fg(Color::Yellow))
}

/// How a window follows its storage's latency.
fn window_line(datastore: &TopDatastore) -> Option<Line<'static>> {
    let now = datastore.control.as_ref()?;
    let latency = now.latency_ns.map_or_else(|| "-".into(), |ns| micros(ns.div_ceil(1_000)));
    let why = match (now.held, now.bound) {
        (Some(Held::Board), _) => " (held: no board)",
        (Some(Held::Idle), _) => " (held: no IO)",
        (Some(Held::Calibration), _) => " (calibrating)",
        (None, Bound::Free) => "",
        (None, Bound::Min) => " (smallest)",
        (None, Bound::Reservations) => " (reserved)",
        (None, Bound::Max) => " (largest)",
    };
    let text = format!(
        "    window {:.2}{why}  beta {:.2}  latency {latency} of {}  hosts {}",
        now.slots,
        now.beta,
        micros(now.threshold_ns.div_ceil(1_000)),
        now.hosts_counted,
    );
    let mut spans = vec![Span::from(text).dim()];
    if now.board == BoardStatus::Unreachable {
        spans.push("  NO BOARD".fg(Color::Red));
    }
    if now.unmanaged_load.is_some() {
        spans.push("  UNMANAGED LOAD".fg(Color::Red));
    }
    if now.duplicate_identity.is_some() {
        spans.push("  CLONED HOST".fg(Color::Red));
    }
    Some(Line::from(spans))
}

fn pair(latency: Option<LatencyMicros>) -> String {
    latency.map_or_else(|| "-".into(), |l| format!("{}/{}", micros(l.p50), micros(l.p99)))
}

/// The text, cut to so many characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

fn disk_line(disk: &TopDisk, width: usize) -> Line<'static> {
    let policy = &disk.policy;
    if disk.state != ServiceState::Serving {
        let name = format!("  {}", disk.name);
        return Line::from(vec![
            Span::from(name),
            format!(" {}: see 'headgate disk show'", disk.state.as_str()).fg(Color::Red),
        ]);
    }
    let Load { iops, bytes_per_sec, outstanding, queue_micros, device_micros, .. } = &disk.load;
    let mark = if disk.reservation_missed { "!" } else { " " };
    let reservation = policy.reservation.map_or_else(|| "-".into(), |r| rate(r.get() as f64));
    let limit = limit(policy);
    let got = disk.share_achieved.map_or_else(|| "-".into(), |got| format!("{got:.2}"));
    let (iops, mib, out) = (rate(*iops), mebibytes(*bytes_per_sec), rate(*outstanding));
    let (queue, device) = (pair(*queue_micros), pair(*device_micros));
    let shares = rate(policy.shares.get() as f64);
    let (left, promise, right) = if is_wide(width) {
        (
            format!(
                "  {:<14} {iops:>5} {mib:>6} {queue:>14} {device:>14} {out:>4}",
                cut(disk.name.as_str(), 14)
            ),
            format!(" {mark}{reservation:>5}"),
            format!(" {limit:>6} {shares:>7} {got:>5}"),
        )
    } else {
        (
            format!(
                "  {:<12} {iops:>5} {mib:>5} {queue:>9} {device:>9} {out:>4}",
                cut(disk.name.as_str(), 12)
            ),
            format!(" {mark}{reservation:>5}"),
            format!(" {limit:>6} {shares:>6} {got:>4}"),
        )
    };
    let promise = if disk.reservation_missed {
        Span::from(promise).style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
    } else if policy.reservation.is_some() && disk.queued > 0 {
        promise.fg(Color::Green)
    } else {
        Span::from(promise)
    };
    Line::from(vec![Span::from(left), promise, Span::from(right)])
}

/// The limit in force: `~` marks one that binds only beside others, `+` one with a peak, `*` that
/// reads or writes have one of their own.
fn limit(policy: &Policy) -> String {
    let directed = policy.limit_read.is_some()
        || policy.limit_write.is_some()
        || policy.limit_read_bandwidth.is_some()
        || policy.limit_write_bandwidth.is_some();
    let directed = if directed { "*" } else { "" };
    let (limit, peak) = match (policy.limit, policy.limit_bandwidth) {
        (Some(limit), _) => (rate(limit.get() as f64), policy.limit_peak.is_some()),
        (None, Some(bandwidth)) => (
            format!("{}B", mebibytes(bandwidth.get() as f64)),
            policy.limit_peak_bandwidth.is_some(),
        ),
        (None, None) => return format!("-{directed}"),
    };
    let soft = if policy.limit_mode == LimitMode::Soft { "~" } else { "" };
    let peak = if peak { "+" } else { "" };
    format!("{soft}{limit}{peak}{directed}")
}

/// Priorities on one line; further ones are counted.
const STREAMS_SHOWN: usize = 4;

/// A line with the rates of a disk's priorities, if there are several.
fn streams_line(disk: &TopDisk) -> Option<Line<'static>> {
    if disk.streams.len() < 2 {
        return None;
    }
    let one = |s: &TopStream| format!("  {}: {} {:.0}%", s.priority, rate(s.iops), s.part * 100.0);
    let mut text: String = disk.streams.iter().take(STREAMS_SHOWN).map(one).collect();
    let more = disk.streams.len().saturating_sub(STREAMS_SHOWN);
    if more > 0 {
        text.push_str(&format!("  and {more} more"));
    }
    Some(Line::from(format!("    prio{text}")).dim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::latency::LatencyNow;
    use headgate_api::top::{NarrowedWindow, Top};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};

    fn screen() -> Screen {
        let load = r#"{"iops": 250.0, "normalised_iops": 253.0, "bytes_per_sec": 1048576.0, "read_fraction": 1.0,
            "outstanding": 32.0, "errors": 0, "queue_micros": {"p50": 90000, "p99": 120000},
            "device_micros": {"p50": 5000, "p99": 20100}}"#;
        let disk = |name: &str, reservation: &str, missed: bool| {
            format!(
                r#"{{"name": "{name}", "vm": null, "state": "serving", "policy": {{"reservation": {reservation}, "shares": 100}},
                "clients": 1, "queued": 10, "in_flight": 2, "load": {load}, "reservation_achieved": null,
                "reservation_missed": {missed}, "share_achieved": 0.94}}"#
            )
        };
        let (rd, dm) = (disk("RD", "250", true), disk("DM-with-a-long-name", "null", false));
        let text = format!(
            r#"{{"interval_millis": 2000, "datastores": [{{"name": "array", "state": "serving", "scheduler": "mclock",
            "window": 32, "in_flight": 32, "queued": 64, "capacity_iops": 1600, "reserved_iops": 1900,
            "overbooked_iops": 300, "load": {load}, "disks": [{rd}, {dm}]}}]}}"#
        );
        let mut screen = Screen::default();
        screen.on_top(serde_json::from_str::<Top>(&text).unwrap());
        screen
    }

    #[test]
    fn eighty_columns_show_every_figure() {
        assert_eq!(
            plain(&screen(), 80),
            "DISK            IOPS MiB/s   QUEUE    DEVICE   OUT   RSRV  LIMIT SHARES  GOT\n\
             array  OVERBOOKED by 300  250 IOPS  1.0 MiB/s  device 5.0m/20m 32/32  wait 64  rsrv 1900/1600\n\
             \x20 DM-with-a-l~   250   1.0  90m/120m  5.0m/20m   32      -      -    100 0.94\n\
             \x20 RD             250   1.0  90m/120m  5.0m/20m   32 !  250      -    100 0.94\n"
        );
    }

    #[test]
    fn a_datastore_that_is_to_be_emptied_says_what_is_left() {
        for (placement, words) in [
            (State::Active, "array  OVERBOOKED"),
            (State::Closed, "array  closed  OVERBOOKED"),
            (State::Maintenance, "array  MAINTENANCE, 2 disks left  OVERBOOKED"),
        ] {
            let mut screen = screen();
            screen.top.datastores[0].placement = placement;
            let shown = plain(&screen, 80);
            assert!(shown.contains(words), "{shown}");
        }
    }

    #[test]
    fn a_narrowed_window_says_for_whom_and_what_it_costs() {
        let mut screen = screen();
        let datastore = &mut screen.top.datastores[0];
        datastore.window = 9.26;
        datastore.narrowed = Some(NarrowedWindow {
            disk: "RD".parse().unwrap(),
            promise: NarrowedFor::Reservation,
            before_iops: 1_000,
            now_iops: 990,
        });
        datastore.disks[0].needed_depth = Some(4);
        let text = plain(&screen, 80);
        let line =
            "    window 9.3 narrowed for the reservation of RD: 990 IOPS in all, 1000 before\n";
        assert!(text.contains(line), "{text}");
        let line = "    its reservation needs 4 requests outstanding at all times\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_latency_target_that_is_missed_says_why() {
        let mut screen = screen();
        let mut now = LatencyNow {
            target: "p99=10ms".parse().unwrap(),
            requests: 400,
            late: 97,
            micros: 41_250,
            verdict: Verdict::Window,
        };
        screen.top.datastores[0].disks[1].latency = Some(now);
        let text = plain(&screen, 80);
        let line = "    p99=10ms: 97 of 400 took longer, p99 was 41.25 ms; requests of other disks fill the window\n";
        assert!(text.contains(line), "{text}");
        now.verdict = Verdict::Met;
        screen.top.datastores[0].disks[1].latency = Some(now);
        assert!(!plain(&screen, 80).contains("p99="));
    }

    #[test]
    fn priorities_are_shown_below_their_disk_when_there_are_several() {
        let mut screen = screen();
        let streams = |count: u64| -> Vec<TopStream> {
            let one = |n: u64| TopStream {
                priority: (200 - n).try_into().unwrap(),
                iops: 60.0,
                part: 0.25,
            };
            (0..count).map(one).collect()
        };
        screen.top.datastores[0].disks[0].streams = streams(1);
        screen.top.datastores[0].disks[1].streams = streams(6);
        let text = plain(&screen, 80);
        let line = "    prio  200: 60 25%  199: 60 25%  198: 60 25%  197: 60 25%  and 2 more\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("prio").count(), 1, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 94), "{text}");
    }

    #[test]
    fn a_controlled_window_has_a_line_of_its_own() {
        let mut screen = screen();
        let control = r#"{"slots": 15.234, "bound": "free", "beta": 1.5, "threshold_ns": 25000000, "latency_ns": 26800000,
            "own_latency_ns": null, "own_ios": 0, "held": null, "hosts_counted": 4, "hosts_differing": 0,
            "unmanaged_load": "load", "board": "unreachable", "board_place": null, "board_error": null,
            "board_exchanges": 0, "board_unreadable": 0, "duplicate_identity": null, "hosts": [], "periods": 9}"#;
        screen.top.datastores[0].control = Some(serde_json::from_str(control).unwrap());
        screen.top.datastores[0].window = 15.234;
        let text = plain(&screen, 80);
        let line =
            "    window 15.23  beta 1.50  latency 27m of 25m  hosts 4  NO BOARD  UNMANAGED LOAD\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("32/15.2"), "{text}");
    }

    #[test]
    fn a_missed_reservation_is_red() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut screen = screen();
        terminal.draw(|frame| draw(frame, &mut screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let red = (0..80).filter(|&x| buffer[(x, 3)].fg == Color::Red).count();
        assert_eq!(red, " ! 250".len() + 1);
    }

    #[test]
    fn limits_that_may_be_passed_are_marked() {
        let policy = |text: &str| serde_json::from_str::<Policy>(text).unwrap();
        for (text, said) in [
            ("{}", "-"),
            (r#"{"limit_mode": "soft"}"#, "-"),
            (r#"{"limit": 500}"#, "500"),
            (r#"{"limit": 500, "limit_write": 100}"#, "500*"),
            (r#"{"limit_read_bandwidth": 1048576}"#, "-*"),
            (r#"{"limit": 500, "limit_mode": "soft"}"#, "~500"),
            (r#"{"limit": 500, "limit_peak": 900}"#, "500+"),
            (r#"{"limit": 500, "limit_peak_bandwidth": 900}"#, "500"),
            (r#"{"limit_bandwidth": 2097152, "limit_peak_bandwidth": 4194304}"#, "2.0B+"),
        ] {
            assert_eq!(limit(&policy(text)), said, "{text}");
        }
    }

    #[test]
    fn every_size_of_terminal_is_drawn() {
        for (width, height) in [(1, 1), (20, 3), (80, 24), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut screen = screen();
            screen.offset = usize::MAX;
            for key in ['?', 'x', '/', 'R'] {
                terminal.draw(|frame| draw(frame, &mut screen)).unwrap();
                screen.on_key(KeyEvent::from(KeyCode::Char(key)));
            }
            assert_eq!(screen.filter, "R");
        }
    }

    #[test]
    fn filter_and_sort_choose_the_lines() {
        let mut screen = screen();
        screen.on_key(KeyEvent::from(KeyCode::Char('r')));
        let disks: Vec<String> =
            screen.disks(&screen.top.datastores[0]).iter().map(|d| d.name.to_string()).collect();
        assert_eq!(disks, ["RD", "DM-with-a-long-name"]);
        for key in ['/', 'D', 'M'] {
            screen.on_key(KeyEvent::from(KeyCode::Char(key)));
        }
        assert_eq!(screen.disks(&screen.top.datastores[0]).len(), 1);
    }
}
