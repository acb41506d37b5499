//! What every manifest must say.

use toml::{Table, Value};

/// What is missing in the manifest at `path`.
pub fn check(path: &str, manifest: &Table) -> Vec<String> {
    let mut findings = Vec::new();
    if let Some(package) = manifest.get("package").and_then(Value::as_table) {
        for field in ["version", "edition", "rust-version", "license", "publish"] {
            if !inherits(package.get(field)) {
                findings.push(format!("{path}: write {field}.workspace = true"));
            }
        }
        if package.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
            findings.push(format!("{path}: a description is missing"));
        }
        if !inherits(manifest.get("lints")) {
            findings.push(format!("{path}: write [lints] workspace = true"));
        }
        weak_features(path, manifest, &mut findings);
    } else {
        workspace(path, manifest, &mut findings);
    }
    findings
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|v| v.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// `dep?/feature` hides who switches what on.
fn weak_features(path: &str, manifest: &Table, findings: &mut Vec<String>) {
    let features = manifest.get("features").and_then(Value::as_table).into_iter().flatten();
    for (name, parts) in features {
        for part in parts.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if part.contains("?/") {
                findings.push(format!(
                    "{path}: feature {name} uses the weak syntax {part:?}; name the dependency's feature outright"
                ));
            }
        }
    }
}

fn workspace(path: &str, manifest: &Table, findings: &mut Vec<String>) {
    let Some(workspace) = manifest.get("workspace") else {
        findings.push(format!("{path}: neither a package nor a workspace"));
        return;
    };
    let package = |field: &str| workspace.get("package").and_then(|p| p.get(field)).and_then(Value::as_str);
    if package("license") != Some("MIT OR Apache-2.0") {
        findings.push(format!("{path}: the licence is MIT OR Apache-2.0"));
    }
    if package("rust-version").is_none() {
        findings.push(format!("{path}: rust-version is missing"));
    }
    let unsafe_code =
        workspace.get("lints").and_then(|l| l.get("rust")).and_then(|r| r.get("unsafe_code")).and_then(Value::as_str);
    if unsafe_code != Some("forbid") {
        findings.push(format!("{path}: [workspace.lints.rust] unsafe_code = \"forbid\" is missing"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\ndescription = \"b\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n[features]\nx = [\"dep:y\"]\n[lints]\nworkspace = true\n";

    fn findings(text: &str) -> Vec<String> {
        check("x/Cargo.toml", &text.parse().expect("TOML"))
    }

    #[test]
    fn packages() {
        assert_eq!(findings(GOOD), Vec::<String>::new());
        for (from, to, want) in [
            ("license.workspace = true", "license = \"MIT\"", "license.workspace"),
            ("rust-version.workspace = true\n", "", "rust-version.workspace"),
            ("[lints]\nworkspace = true\n", "", "[lints] workspace"),
            ("dep:y", "y?/z", "weak syntax"),
            ("description = \"b\"\n", "", "description"),
        ] {
            let found = findings(&GOOD.replace(from, to));
            assert!(found.len() == 1 && found[0].contains(want), "{found:?}, wanted {want}");
        }
    }

    #[test]
    fn the_workspace() {
        let good = "[workspace]\n[workspace.package]\nlicense = \"MIT OR Apache-2.0\"\nrust-version = \"1.95\"\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        assert_eq!(findings(good), Vec::<String>::new());
        assert_eq!(findings(&good.replace("forbid", "warn")).len(), 1);
        assert_eq!(findings(&good.replace("MIT OR Apache-2.0", "MIT")).len(), 1);
    }
}
