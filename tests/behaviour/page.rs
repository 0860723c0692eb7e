//! The page of the daemon in a real browser: who is let in, what it shows of load, of an empty
//! daemon and of many disks, by keyboard and at 400 points, and while the daemon is gone.

use anyhow::{Context, ensure};
use headgate_lab::browser::{Browser, CHROMIUM, Scheme};
use headgate_lab::headgate::Headgate;
use headgate_lab::load::Client;
use headgate_lab::process::run;
use headgate_lab::prometheus::free_address;
use headgate_lab::{Lab, Server, count, wait_for, with_lab};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Disks of a page that has many, unless `HEADGATE_PAGE_DISKS` says otherwise; at least 280. To
/// make them takes most of the time.
const DISKS: u32 = 300;

const ADMIN: &str = "an-admins-token-of-forty-letters-and-two";
const VIEWER: &str = "a-viewers-token-of-forty-letters-and-one";

/// A daemon with a page.
struct Site {
    daemon: Headgate,
    address: SocketAddr,
}

/// Words with which a daemon serves its page at an address, to whoever shows a token.
pub(super) fn served_at(lab: &Lab, address: SocketAddr) -> anyhow::Result<[String; 2]> {
    let tokens = lab.dir().join("tokens.toml");
    let mut text = String::new();
    for (name, token, role) in [("ops", ADMIN, "admin"), ("wall", VIEWER, "viewer")] {
        writeln!(text, "[[token]]\nname = '{name}'\ntoken = '{token}'\nrole = '{role}'")?;
    }
    fs::write(&tokens, text)?;
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
    Ok([format!("--api-listen={address}"), format!("--api-tokens={}", tokens.display())])
}

/// Opens a view of the page at an address, and shows a viewer's token.
pub(super) fn open(browser: &mut Browser, address: SocketAddr, view: &str) -> anyhow::Result<()> {
    browser.open(&format!("http://{address}/#{view}"))?;
    browser.wait_text("#state", |text| text == "Waiting for a token")?;
    show(browser, VIEWER)
}

impl Site {
    fn new(lab: &Lab) -> anyhow::Result<Site> {
        let address = free_address()?;
        let words = served_at(lab, address)?;
        let words = words.each_ref().map(String::as_str);
        Ok(Site { daemon: Headgate::start_as(lab, "state", &[], &words)?, address })
    }

    /// A browser that has opened a view, and shows a token.
    fn browser(&self, lab: &Lab, view: &str) -> anyhow::Result<Browser> {
        let mut browser = Browser::start(lab)?;
        open(&mut browser, self.address, view)?;
        Ok(browser)
    }
}

/// Types a token, and sends the form.
fn show(browser: &mut Browser, token: &str) -> anyhow::Result<()> {
    browser.evaluate(&format!("document.querySelector('#token').value = '{token}'"))?;
    browser.click("#login button").map(drop)
}

/// The cells of a disk's row.
fn row(browser: &mut Browser, disk: &str) -> anyhow::Result<Vec<String>> {
    let script = format!(
        "[...document.querySelectorAll('#disk-table tbody tr')] \
         .filter((row) => row.cells[0].innerText === '{disk}') \
         .flatMap((row) => [...row.cells].map((cell) => cell.innerText))"
    );
    serde_json::from_value(browser.evaluate(&script)?).context("cells are texts")
}

fn received(browser: &mut Browser, disk: &str) -> anyhow::Result<f64> {
    let cells = row(browser, disk)?;
    let text = cells.get(4).with_context(|| format!("no row of {disk}: {cells:?}"))?;
    text.replace(',', "").parse().with_context(|| format!("{cells:?}"))
}

#[test]
fn the_page_shows_what_was_promised_and_what_is_received_to_who_may_look() {
    with_lab(&[CHROMIUM, "fio"], |lab| {
        let mut site = Site::new(lab)?;
        let daemon = &site.daemon;
        let array = ["datastore", "add", "array", "--emulated", "rate=200", "--capacity=1000"];
        daemon.command(&array)?;
        let disk = ["disk", "create", "--datastore=array", "--size=32M", "--vm"];
        daemon.command(&[&disk[..], &["shop", "db", "--reservation=500"]].concat())?;
        daemon.command(&[&disk[..], &["batch", "flood"]].concat())?;
        let mut clients = Vec::new();
        for disk in ["db", "flood"] {
            let mut client = Client::nbd(lab, daemon, disk)?;
            client.start()?;
            clients.push(client);
        }

        let mut browser = Browser::start(lab)?;
        browser.open(&format!("http://{}/", site.address))?;
        browser.wait_text("#state", |text| text == "Waiting for a token")?;
        show(&mut browser, "no-such-token-of-more-than-thirty-letters")?;
        browser.wait_text("#refused", |text| text.contains("has shown no token that is known"))?;
        ensure!(browser.text("#datastores")?.is_empty(), "a stranger sees datastores");
        show(&mut browser, VIEWER)?;
        browser.wait_text("#datastores", |text| text.contains("array"))?;
        ensure!(browser.text("#login")?.is_empty(), "the form is there still");
        browser.wait_text("[data-datastore=array]", |text| {
            text.contains("Reserved 500 of 1,000 IOPS") && text.contains("capacity 1,000")
        })?;
        let drawn = "document.querySelectorAll('[data-datastore=array] canvas').length";
        ensure!(browser.evaluate(drawn)? == 3, "graphs are missing");

        // From tab to tab by keyboard alone.
        browser.evaluate("document.querySelector('#tab-datastores').focus()")?;
        browser.press("ArrowRight")?;
        browser.wait_text("#disk-table", |text| text.contains("flood"))?;
        browser.wait_text("#disk-table", |text| text.contains("reservation missed"))?;
        let cells = row(&mut browser, "db")?;
        ensure!(cells[1] == "shop" && cells[2] == "array" && cells[3] == "500", "{cells:?}");
        // The array gives 200 to both, and nearly all of that to what is reserved.
        let rate = received(&mut browser, "db")?;
        ensure!((150.0..=210.0).contains(&rate), "received is {rate}");
        // Who is served least of what it asks for waits for the other.
        wait_for("the flood should wait for the database", MINUTE, || {
            let cells = row(&mut browser, "flood")?;
            Ok(cells.iter().any(|cell| cell.starts_with("db ")).then_some(()))
        })?;
        browser.evaluate(
            "[...document.querySelectorAll('#disk-table tbody button')] \
             .find((one) => one.innerText === 'db').click()",
        )?;
        browser.wait_text("#detail", |text| {
            text.contains("promised") && text.contains("received") && text.contains("Waits for")
        })?;
        // The first sample of the past is a minute's.
        wait_for("the past should be shown", 3 * MINUTE, || {
            browser.click("#past button")?;
            let text = browser.text("#past-facts")?;
            Ok((text.contains("Short for") && text.contains("its own requests")).then_some(()))
        })?;
        browser.evaluate("document.querySelector('#tab-disks').focus()")?;
        browser.press("ArrowRight")?;
        browser
            .wait_text("#machine-table", |text| text.contains("shop") && text.contains("batch"))?;
        // The datastore's past, by the hour that is under way.
        browser.click("#tab-datastores")?;
        wait_for("the datastore's past should be shown", 3 * MINUTE, || {
            browser.click("[data-datastore=array] .store-past button")?;
            let text = browser.text("[data-datastore=array] .store-past")?;
            let is_drawn = "document.querySelectorAll('.store-past canvas').length";
            let has_reads = text.contains("Reads") && !text.contains("Reads 0");
            Ok((has_reads && text.contains("peak") && browser.evaluate(is_drawn)? == 4)
                .then_some(()))
        })?;
        browser.click("#tab-events")?;
        browser.wait_text("#event-table", |text| {
            text.contains("disk create") && text.contains("disk reservation missed")
        })?;
        browser.click("#tab-moves")?;
        browser.wait_text("#under-way", |text| text == "No disk is moving.")?;

        // What is received follows the load.
        for client in clients {
            client.stop()?;
        }
        browser.click("#tab-disks")?;
        browser.wait_text("#disk-table", |text| !text.contains("reservation missed"))?;
        wait_for("nothing is received where nobody asks", MINUTE, || {
            Ok((received(&mut browser, "db")? == 0.0).then_some(()))
        })?;
        browser.ensure_content()?;
        site.daemon.stop()
    });
}

#[test]
fn the_page_says_that_a_daemon_is_empty_and_that_it_is_gone_and_goes_on_when_it_is_back() {
    with_lab(&[CHROMIUM], |lab| {
        let mut site = Site::new(lab)?;
        let mut browser = site.browser(lab, "disks")?;
        browser.wait_text("#disk-table", |text| text.contains("There is no disk yet"))?;
        browser.wait_text("#state", |text| text == "In order")?;
        site.daemon.command(&["disk", "create", "late", "--size=16M"])?;
        browser.wait_text("#disk-table", |text| text.contains("late"))?;
        browser.click("#tab-hosts")?;
        browser.wait_text("#hosts", |text| text.contains("This host alone"))?;
        browser.wait_text("#fleet-disk-table", |text| text.contains("late"))?;
        browser.wait_text("#host-table", |text| text.contains("running"))?;
        browser.click("#tab-disks")?;

        site.daemon.kill()?;
        browser.wait_text("#trouble", |text| text.contains("Nothing was heard since"))?;
        ensure!(browser.text("#state")? == "No answer");
        ensure!(browser.text("#disk-table")?.contains("late"), "what was known is gone");
        site.daemon.start_again()?;
        browser.wait_text("#state", |text| text == "In order")?;
        browser.wait_text("#trouble", str::is_empty)?;
        site.daemon.command(&["disk", "create", "later", "--size=16M"])?;
        browser.wait_text("#disk-table", |text| text.contains("later"))?;

        // An answer that begins and does not end, as of a daemon that is short of time.
        browser.evaluate(
            "window.whole = window.fetch;
             window.fetch = async () => new Response(new ReadableStream({
               start(body) { body.error(new Error('cut')); } })); 0",
        )?;
        browser.wait_text("#trouble", |text| text.contains("broke off"))?;
        ensure!(browser.text("#disk-table")?.contains("later"), "what was known is gone");
        browser.evaluate("window.fetch = window.whole; 0")?;
        browser.wait_text("#trouble", str::is_empty)?;
        browser.ensure_content()?;
        site.daemon.stop()
    });
}

/// Many disks by one client of the API: a command each takes longer.
fn create(lab: &Lab, site: &Site, count: u32) -> anyhow::Result<()> {
    let config = lab.dir().join("disks.curl");
    let mut text = String::new();
    for n in 0..count {
        let body = format!(
            r#"{{\"name\":\"disk{n}\",\"size\":1048576,\"datastore\":\"ram\",\"vm\":\"vm{}\"}}"#,
            n % 50
        );
        write!(
            text,
            "{}url = \"http://{}/v1/disks\"\nsilent\nfail\noutput = \"/dev/null\"\n\
             header = \"Authorization: Bearer {ADMIN}\"\nheader = \"Content-Type: application/json\"\n\
             data = \"{body}\"\n",
            if n > 0 { "next\n" } else { "" },
            site.address
        )?;
    }
    fs::write(&config, text)?;
    let mut command = Command::new("curl");
    command.arg("--config").arg(&config);
    run(command, 10 * MINUTE).map(drop)
}

#[test]
fn the_page_has_room_for_many_disks_also_on_a_telephone() {
    with_lab(&[CHROMIUM, "curl"], |lab| {
        let mut site = Site::new(lab)?;
        site.daemon.command(&["datastore", "add", "ram", "--memory", "2G"])?;
        let disks = count("HEADGATE_PAGE_DISKS", DISKS)?;
        create(lab, &site, disks)?;
        let mut browser = site.browser(lab, "disks")?;
        browser.wait_text("#count", |text| text == format!("100 of {disks} disks"))?;
        browser.click("#more")?;
        browser.wait_text("#count", |text| text == format!("200 of {disks} disks"))?;
        browser.evaluate(
            "(() => { const filter = document.querySelector('#filter'); filter.value = 'disk27'; \
             filter.dispatchEvent(new Event('input')); })()",
        )?;
        browser.wait_text("#count", |text| text == format!("11 of {disks} disks"))?;
        ensure!(!row(&mut browser, "disk277")?.is_empty(), "disk277 is not found");

        let too_wide = "document.documentElement.scrollWidth > innerWidth";
        for scheme in [Scheme::Light, Scheme::Dark] {
            browser.prefer(scheme)?;
            for (width, height) in [(1440, 900), (400, 800)] {
                browser.resize(width, height)?;
                for view in ["datastores", "disks", "machines", "moves", "hosts", "events"] {
                    browser.click(&format!("#tab-{view}"))?;
                    browser.wait_text(&format!("#{view}"), |text| !text.trim().is_empty())?;
                    ensure!(browser.evaluate(too_wide)? == false, "{view} at {width}, {scheme:?}");
                }
            }
        }
        let contrast = browser.evaluate(
            "(() => { const style = getComputedStyle(document.body); \
             return [style.color, style.backgroundColor]; })()",
        )?;
        ensure!(contrast[0] != contrast[1] && contrast[1] != "rgb(246, 247, 249)", "{contrast}");
        browser.ensure_content()?;
        site.daemon.stop()
    });
}
