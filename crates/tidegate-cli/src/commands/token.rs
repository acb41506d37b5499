//! `tidegate token`: a fresh API token, printed once; the server keeps its SHA-256 only.

use rand::TryRngCore;
use rand::rngs::OsRng;
use serde_json::json;

use crate::config::tokens;
use crate::failure::{Failure, Result};
use crate::output;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// Flags of `token`.
#[derive(clap::Args)]
pub struct Args {
    /// Name shown in logs and by `config check`
    #[arg(long, value_name = "NAME", default_value = "web")]
    name: String,
    /// What it may do: read (look), shop (orders and payments as well), ops (all)
    #[arg(long, value_name = "ROLE", default_value = "shop", value_parser = tokens::ROLES)]
    role: String,
    /// Print one JSON object: {"token", "name", "role", "sha256"}
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let token = random()?;
    let sha256 = hex(&tidegate_server::hash_token(&token));
    let lines = snippet(&args.name, &args.role, &sha256).map_err(|why| Failure::Usage(format!("--name: {why}")))?;
    if args.json {
        return output::json(&json!({ "token": token, "name": args.name, "role": args.role, "sha256": sha256 }));
    }
    output::line(token)?;
    output::note(
        "This token is shown once. Give it to the client (TIDEGATE_TOKEN), and these lines to the server's configuration file:\n",
    );
    output::raw(lines)
}

/// A token from the operating system's random numbers.
pub fn random() -> Result<String> {
    let mut bytes = [0_u8; TOKEN_BYTES];
    OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|e| Failure::Work(format!("the operating system gives no random numbers: {e}")))?;
    Ok(format!("tg_{}", hex(&bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn snippet(name: &str, role: &str, sha256: &str) -> std::result::Result<String, String> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let lines = format!("[[tokens]]\nname = {}\nrole = {}\nsha256 = {}\n", quoted(name), quoted(role), quoted(sha256));
    let mut layers = crate::config::layers::Layers::default();
    layers.read_toml("", &lines);
    match layers.faults.pop() {
        None => Ok(lines),
        Some(fault) => Err(fault.split_once(": ").map_or(fault.clone(), |(_, why)| why.to_owned())),
    }
}
