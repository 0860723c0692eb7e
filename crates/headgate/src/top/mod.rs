//! `headgate top`: what datastores and disks do right now, in a terminal.

mod blame;
mod copies;
mod format;
mod machines;
mod screen;
mod view;
mod wide;

use headgate_api::client::{Client, ClientError};
use headgate_api::top::Top;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Next, Screen};
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the view is renewed.
const PERIOD: Duration = Duration::from_secs(1);

/// Why the view ended.
#[derive(Debug, Error)]
pub enum TopError {
    /// The daemon does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
}

/// The view once, as text of the terminal's width.
///
/// # Errors
/// When the daemon does not answer.
pub fn once(client: &Client) -> Result<String, TopError> {
    let mut screen = Screen::default();
    screen.on_top(fetch(client)?);
    let width = ratatui::crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width));
    Ok(view::plain(&screen, width))
}

/// The live view as the API has it, with rates: waits out the first seconds of a daemon.
///
/// # Errors
/// When the daemon does not answer.
pub fn fetch(client: &Client) -> Result<Top, TopError> {
    let deadline = Instant::now() + 3 * PERIOD;
    loop {
        let top: Top = client.get("/v1/top")?;
        if top.interval_millis > 0 || top.datastores.is_empty() || Instant::now() >= deadline {
            return Ok(top);
        }
        std::thread::sleep(PERIOD / 4);
    }
}

/// The view until `q`. A daemon that goes away is waited for.
///
/// # Errors
/// When there is no daemon at the start, or the terminal fails.
pub fn live(client: &Client) -> Result<(), TopError> {
    let mut screen = Screen::default();
    screen.on_top(client.get("/v1/top")?);
    let mut terminal = ratatui::try_init()?;
    let result = watch(client, &mut terminal, &mut screen);
    ratatui::try_restore()?;
    result
}

fn watch(
    client: &Client,
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
) -> Result<(), TopError> {
    let mut due = Instant::now() + PERIOD;
    loop {
        terminal.draw(|frame| view::draw(frame, screen))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key)
                    if key.kind == KeyEventKind::Press && screen.on_key(key) == Next::Quit =>
                {
                    return Ok(());
                }
                _ => {}
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + PERIOD;
            match client.get("/v1/top") {
                Ok(top) => screen.on_top(top),
                Err(e) => screen.on_trouble(e.to_string()),
            }
        }
    }
}
