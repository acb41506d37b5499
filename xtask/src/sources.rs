//! What sources must not hold.

use crate::tree::File;

/// Longest source file, in lines.
const MAX_LINES: usize = 600;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Crates that never print, exit, read the environment or a clock of their own.
const LIBRARIES: [&str; 6] = [
    "crates/tidegate-core/",
    "crates/tidegate-backend/",
    "crates/tidegate-embedded/",
    "crates/tidegate-sql/",
    "crates/tidegate-redis/",
    "crates/tidegate/",
];

/// What is wrong in `file`; `machine` are beginnings of paths that belong to one machine.
pub fn check(file: &File, machine: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    if file.path.ends_with(".rs") {
        if is_shipped(&file.path) {
            unfinished(file, &mut findings);
            manners(file, &mut findings);
        }
        length(file, &mut findings);
    }
    machine_path(file, machine, &mut findings);
    findings
}

/// Not a test, bench, example or this tool.
fn is_shipped(path: &str) -> bool {
    let apart = ["tests", "benches", "examples", "xtask"];
    !path.split('/').any(|part| apart.contains(&part)) && !path.ends_with("/tests.rs")
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn unfinished(file: &File, findings: &mut Vec<String>) {
    for mark in [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("FIX", "ME"), concat!("XX", "X")] {
        for (at, _) in file.text.match_indices(mark) {
            findings.push(format!("{}:{}: {mark} in shipped code; finish it", file.path, line_of(&file.text, at)));
        }
    }
    for (at, _) in file.text.match_indices(concat!("#[al", "low(")) {
        findings.push(format!(
            "{}:{}: write #[expect(.., reason = \"..\")], so that it goes when it is no longer needed",
            file.path,
            line_of(&file.text, at)
        ));
    }
}

fn manners(file: &File, findings: &mut Vec<String>) {
    if !LIBRARIES.iter().any(|folder| file.path.starts_with(folder)) {
        return;
    }
    let core = file.path.starts_with(LIBRARIES[0]);
    let everywhere = ["println!", "eprintln!", "process::exit", "env::var"];
    let in_core = ["SystemTime", "Instant::now", "std::thread", "std::fs", "std::net"];
    let shipped = before_tests(&file.text);
    for word in everywhere.iter().chain(if core { &in_core[..] } else { &[] }) {
        for (at, _) in shipped.match_indices(word) {
            let line = shipped[..at].rsplit('\n').next().unwrap_or_default().trim_start();
            if !line.starts_with("//") {
                let why = if in_core.contains(word) {
                    "the rules are pure"
                } else {
                    "a library does not print, exit or read the environment"
                };
                findings.push(format!("{}:{}: {word}: {why}", file.path, line_of(shipped, at)));
            }
        }
    }
}

/// The part of a file above its `#[cfg(test)]` module.
fn before_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\n").map_or(text, |at| &text[..at])
}

fn length(file: &File, findings: &mut Vec<String>) {
    let lines = file.text.lines().count();
    let excused = LONG_FILES.iter().any(|(path, _)| *path == file.path);
    if lines > MAX_LINES && !excused {
        findings.push(format!(
            "{}: {lines} lines, more than {MAX_LINES}; split it by duty, or give the reason in xtask/src/sources.rs",
            file.path
        ));
    }
}

/// Exceptions that excuse nothing any more.
pub fn stale_exceptions(files: &[File]) -> Vec<String> {
    let stale = LONG_FILES
        .iter()
        .filter(|(path, _)| !files.iter().any(|file| file.path == *path && file.text.lines().count() > MAX_LINES));
    stale
        .map(|(path, _)| {
            format!("xtask/src/sources.rs: {path} is not that long any more; strike it from the exceptions")
        })
        .collect()
}

fn machine_path(file: &File, machine: &[String], findings: &mut Vec<String>) {
    for prefix in machine {
        let at = file.text.match_indices(prefix.as_str()).map(|(at, _)| at).find(|at| {
            // Only the beginning of a path: not `a/home/b`.
            !file.text[..*at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '}'))
        });
        if let Some(at) = at {
            findings.push(format!("{}:{}: {prefix}.. is a path of one machine", file.path, line_of(&file.text, at)));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.to_owned(), text: text.to_owned() }, &["/ho\u{6d}e/".to_owned()])
    }

    #[test]
    fn bad_files_are_found() {
        let long = "\n".repeat(MAX_LINES + 1);
        let todo = concat!("fn f() {\n    to", "do!()\n}");
        let allow = concat!("#[al", "low(dead_code)]");
        let home = concat!("see /ho", "me/ann/x");
        for (path, text, want) in [
            ("crates/tidegate/src/a.rs", todo, "a.rs:2: "),
            ("crates/tidegate-cli/src/a.rs", concat!("// FIX", "ME later"), "a.rs:1: "),
            ("crates/tidegate-cli/src/a.rs", allow, "write #[expect"),
            ("crates/tidegate-server/src/a.rs", long.as_str(), "601 lines"),
            ("crates/tidegate/src/a.rs", "println!(\"x\")", "a library does not print"),
            ("crates/tidegate-core/src/a.rs", "std::time::SystemTime::now()", "the rules are pure"),
            ("README.md", home, "path of one machine"),
        ] {
            let found = findings(path, text);
            assert!(found.len() == 1 && found[0].contains(want), "{path}: {found:?}, wanted {want}");
        }
    }

    #[test]
    fn good_files_are_left_alone() {
        let todo = concat!("to", "do!()");
        for (path, text) in [
            ("crates/tidegate/tests/a.rs", todo),
            ("crates/tidegate/src/workers/tests.rs", todo),
            ("crates/tidegate-cli/src/a.rs", "println!(\"x\")"),
            ("crates/tidegate/src/a.rs", "// never println!\n#[cfg(test)]\nmod tests { println!() }"),
            ("README.md", "https://example.com/home/x and ./home/x"),
        ] {
            assert_eq!(findings(path, text), Vec::<String>::new(), "{path}");
        }
    }
}
