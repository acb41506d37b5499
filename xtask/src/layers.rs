//! The layer rules: which crate of ours may depend on which, and who may name a vendor's crate.

use toml::Table;

/// Our crates from the bottom up, each with those of ours it may depend on. What is marked `?` must be optional, behind
/// a feature.
const OURS: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-backend", &["tidegate-core"]),
    ("tidegate-conformance", &["tidegate-core", "tidegate-backend"]),
    ("tidegate-embedded", &["tidegate-core", "tidegate-backend"]),
    ("tidegate-sql", &["tidegate-core", "tidegate-backend"]),
    ("tidegate-redis", &["tidegate-core", "tidegate-backend"]),
    ("tidegate", &["tidegate-core", "tidegate-backend", "?tidegate-embedded", "?tidegate-sql", "?tidegate-redis"]),
    ("tidegate-server", &["tidegate"]),
    ("tidegate-cli", &["tidegate", "tidegate-server"]),
    ("xtask", &[]),
];

/// The contract suite: every back end and the library may have it as a dev-dependency.
const CONFORMANCE: &str = "tidegate-conformance";

/// Crates of others that only some of ours may name.
const VENDORS: &[(&[&str], &[&str], &str)] = &[
    (&["rusqlite", "libsqlite3-sys"], &["tidegate-embedded"], "SQL drivers stay in the back ends"),
    (
        &["sqlx", "sqlx-core", "deadpool", "mysql_async", "tokio-postgres"],
        &["tidegate-sql"],
        "SQL drivers stay in the back ends",
    ),
    (&["redis", "fred", "rustis"], &["tidegate-redis"], "the Redis client stays in its back end"),
    (
        &["axum", "tower-http", "tower", "utoipa-axum", "actix-web"],
        &["tidegate-server"],
        "only the server is an HTTP server",
    ),
    (
        &["hyper", "hyper-util", "reqwest", "ureq"],
        &["tidegate-server", "tidegate-cli"],
        "only server and cli speak HTTP",
    ),
    (&["clap", "indicatif"], &["tidegate-cli"], "only the command line has flags"),
];

/// What the rules (core) must be free of: runtimes, clocks, randomness, the operating system.
const NOT_IN_CORE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "futures",
    "futures-util",
    "async-trait",
    "rand",
    "getrandom",
    "uuid",
    "jiff",
    "chrono",
    "time",
    "rustix",
    "libc",
    "nix",
    "tracing",
    "metrics",
];

/// What is wrong with the dependencies of the manifest at `path`.
pub fn check(path: &str, manifest: &Table) -> Vec<String> {
    let Some(name) = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str()) else {
        return Vec::new();
    };
    let Some((_, allowed)) = OURS.iter().find(|(crate_name, _)| *crate_name == name) else {
        return vec![format!("{path}: crate {name} has no place in the layers; give it one in xtask/src/layers.rs")];
    };
    let mut findings = Vec::new();
    for (section, dependency, optional) in dependencies(manifest) {
        let dev = section == "dev-dependencies";
        let is_ours = OURS.iter().any(|(crate_name, _)| *crate_name == dependency);
        let conformance = dev && dependency == CONFORMANCE;
        if is_ours && !conformance && dependency != name {
            let behind = allowed.contains(&format!("?{dependency}").as_str());
            if !behind && !allowed.contains(&dependency.as_str()) {
                findings.push(format!("{path}: {name} must not depend on {dependency} ([{section}]); dependencies point down the layers only"));
            } else if behind && !optional && !dev {
                findings.push(format!("{path}: {dependency} must be optional in {name}, behind a feature"));
            }
        }
        for (crates, owners, why) in VENDORS {
            if crates.contains(&dependency.as_str()) && !owners.contains(&name) && !dev {
                findings.push(format!("{path}: {name} must not name {dependency}: {why} ({})", owners.join(", ")));
            }
        }
        if name == "tidegate-core" && !dev && NOT_IN_CORE.contains(&dependency.as_str()) {
            findings.push(format!(
                "{path}: {name} must not name {dependency}: the rules are pure, time and ids are handed in"
            ));
        }
    }
    findings
}

/// `(section, crate, optional)` of every dependency, those of targets included.
fn dependencies(manifest: &Table) -> Vec<(&'static str, String, bool)> {
    const SECTIONS: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];
    let targets = manifest
        .get("target")
        .and_then(|t| t.as_table())
        .into_iter()
        .flat_map(Table::values)
        .filter_map(|t| t.as_table());
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for section in SECTIONS {
            for (name, spec) in table.get(section).and_then(|d| d.as_table()).into_iter().flatten() {
                let real = spec.get("package").and_then(|p| p.as_str()).unwrap_or(name);
                let optional = spec.get("optional").and_then(toml::Value::as_bool).unwrap_or(false);
                found.push((section, real.to_owned(), optional));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, rest: &str) -> Vec<String> {
        check("x/Cargo.toml", &format!("[package]\nname = \"{name}\"\n{rest}").parse().expect("TOML"))
    }

    #[test]
    fn what_may_be() {
        for (name, rest) in [
            ("tidegate-core", "[dependencies]\nserde = \"1\"\n[dev-dependencies]\nproptest = \"1\""),
            (
                "tidegate-embedded",
                "[dependencies]\nrusqlite.workspace = true\ntidegate-core.workspace = true\n[dev-dependencies]\ntidegate-conformance.workspace = true",
            ),
            ("tidegate", "[dependencies]\ntidegate-embedded = { workspace = true, optional = true }"),
            (
                "tidegate-cli",
                "[dependencies]\ntidegate.workspace = true\ntidegate-server.workspace = true\nreqwest = \"0.13\"",
            ),
        ] {
            assert_eq!(findings(name, rest), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn what_must_not_be() {
        for (name, rest, want) in [
            ("tidegate-core", "[dependencies]\ntokio = \"1\"", "must not name tokio"),
            ("tidegate-core", "[target.'cfg(unix)'.dependencies]\nrustix = \"1\"", "must not name rustix"),
            (
                "tidegate-core",
                "[dependencies]\ntidegate-backend.workspace = true",
                "must not depend on tidegate-backend",
            ),
            ("tidegate-backend", "[dependencies]\nreqwest = \"0.13\"", "must not name reqwest"),
            (
                "tidegate-embedded",
                "[dependencies]\ntidegate-redis.workspace = true",
                "must not depend on tidegate-redis",
            ),
            (
                "tidegate-embedded",
                "[dependencies]\ntidegate-conformance.workspace = true",
                "must not depend on tidegate-conformance",
            ),
            ("tidegate", "[dependencies]\ntidegate-embedded.workspace = true", "must be optional"),
            ("tidegate", "[dependencies]\nrusqlite = \"0.40\"", "must not name rusqlite"),
            ("tidegate", "[dependencies]\ndb = { package = \"redis\", version = \"1\" }", "must not name redis"),
            ("tidegate-server", "[dependencies]\ntidegate-core.workspace = true", "must not depend on tidegate-core"),
            ("tidegate-cli", "[dependencies]\naxum = \"0.8\"", "must not name axum"),
            ("tidegate-extra", "", "has no place in the layers"),
        ] {
            let found = findings(name, rest);
            assert!(found.len() == 1 && found[0].contains(want), "{name}: {found:?}, wanted {want}");
        }
    }
}
