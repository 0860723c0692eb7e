//! The OpenAPI document, by programs that no one here wrote: a validator takes it, and a generator
//! makes a client of it that has every operation and works.

use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::process::run_to_end;
use headgate_lab::{Server, cache_dir, with_lab, workspace};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(240);

/// Runs a program of those that `tests/install` put there; answers what it said.
fn run(programs: &Path, program: &str, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(programs.join(program));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let before = [programs.to_owned()].into_iter().chain(std::env::split_paths(&path));
    command.args(words).env("PATH", std::env::join_paths(before)?);
    let finished = run_to_end(command, PATIENCE)?;
    let said = format!("{}{}", finished.stdout, finished.stderr);
    ensure!(finished.status.success(), "{program} {words:?}: {}\n{said}", finished.status);
    Ok(said)
}

fn operations(document: &Value) -> anyhow::Result<usize> {
    let paths = document["paths"].as_object().context("no paths")?;
    Ok(paths.values().filter_map(Value::as_object).map(serde_json::Map::len).sum())
}

/// Modules of the generated client, one for each operation.
fn generated(api: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for tag in fs::read_dir(api)? {
        let tag = tag?.path();
        for module in fs::read_dir(&tag).into_iter().flatten() {
            let name = module?.file_name();
            let name = name.to_string_lossy();
            count += usize::from(name.ends_with(".py") && name != "__init__.py");
        }
    }
    Ok(count)
}

#[test]
fn the_document_is_valid_and_a_client_made_of_it_works() {
    let programs = cache_dir().join("openapi/bin");
    if !programs.join("openapi-python-client").is_file() {
        eprintln!("SKIPPED: no generator of clients in {}; run tests/install", programs.display());
        return;
    }
    with_lab(&[], |lab| {
        let (admin, viewer) = ("a".repeat(40), "v".repeat(40));
        let tokens = lab.dir().join("tokens.toml");
        let token = |name, token: &str, role| {
            format!("[[token]]\nname = \"{name}\"\ntoken = \"{token}\"\nrole = \"{role}\"\n")
        };
        let text = token("ops", &admin, "admin") + &token("ci", &viewer, "viewer");
        fs::write(&tokens, text)?;
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
        let address =
            format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let tokens = tokens.to_string_lossy();
        let words = ["--api-listen", &address, "--api-tokens", &tokens];
        let mut daemon = Headgate::start_as(lab, "state", &[], &words)?;

        let text = daemon.get("/v1/openapi.json")?;
        let document: Value = serde_json::from_str(&text)?;
        let path = lab.dir().join("openapi.json");
        fs::write(&path, &text)?;
        let (path, client) = (path.to_string_lossy(), lab.dir().join("client"));
        let said = run(&programs, "openapi-spec-validator", &[&path])?;
        ensure!(said.contains("OK"), "{said}");
        let output = client.to_string_lossy();
        let words = ["generate", "--path", &path, "--output-path", &output, "--meta", "none"];
        let said = run(&programs, "openapi-python-client", &words)?;
        ensure!(!said.contains("Endpoint will not be generated"), "{said}");
        let (has, made) = (operations(&document)?, generated(&client.join("api"))?);
        ensure!(has > 70 && made == has, "{made} operations of {has} in the client\n{said}");
        let script = workspace().join("tests/behaviour/openapi_client.py");
        let (script, dir) = (script.to_string_lossy(), lab.dir().to_string_lossy());
        let url = format!("http://{address}");
        let said = run(&programs, "python", &[&script, &dir, &url, &admin, &viewer])?;
        ensure!(said.contains("refused and told"), "{said}");
        daemon.stop()
    });
}
