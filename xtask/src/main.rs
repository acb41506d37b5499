//! Checks of the tree that the compiler cannot make: `cargo xtask tidy`.
//!
//! - [`layers`]: which crate may depend on which, from the manifests.
//! - [`manifests`]: licence, Rust version and lints of every manifest.
//! - [`sources`]: unfinished code, long files, what a library must not do, paths of one machine.
//! - [`tree`]: the files that are committed, and reading them.

mod layers;
mod manifests;
mod sources;
mod tree;

use std::process::ExitCode;

#[expect(clippy::print_stderr, clippy::print_stdout, reason = "the one place of this tool that prints")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args != ["tidy"] {
        eprintln!("usage: cargo xtask tidy");
        return ExitCode::from(2);
    }
    match tidy() {
        Ok((checked, findings)) if findings.is_empty() => {
            println!("tidy: {checked} files, nothing found");
            ExitCode::SUCCESS
        }
        Ok((_, findings)) => {
            findings.iter().for_each(|finding| eprintln!("tidy: {finding}"));
            eprintln!(
                "tidy: {} findings; architecture rules are explained in ARCHITECTURE.md and xtask/src",
                findings.len()
            );
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("tidy: {why}");
            ExitCode::from(2)
        }
    }
}

/// Runs every check; gives how many files were read, and the findings.
fn tidy() -> Result<(usize, Vec<String>), String> {
    let root = tree::root()?;
    let files = tree::read(&root)?;
    let mut findings = Vec::new();
    let mut manifests_read = Vec::new();
    for file in &files {
        if file.path.ends_with("Cargo.toml") {
            let table: toml::Table = file.text.parse().map_err(|e| format!("{}: not TOML: {e}", file.path))?;
            manifests_read.push((file.path.clone(), table));
        }
        findings.extend(sources::check(file, &tree::machine_paths(&root)));
    }
    for (path, manifest) in &manifests_read {
        findings.extend(manifests::check(path, manifest));
        findings.extend(layers::check(path, manifest));
    }
    findings.extend(sources::stale_exceptions(&files));
    findings.sort();
    Ok((files.len(), findings))
}
