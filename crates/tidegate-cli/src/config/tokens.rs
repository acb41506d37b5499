//! `[[tokens]]`: who may call the server, each with a name, a role and the SHA-256 of the secret.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use super::value::Origin;

/// The roles, weakest first.
pub const ROLES: [&str; 3] = ["read", "shop", "ops"];
/// Longest name of a token, in bytes.
const MAX_NAME: usize = 64;

/// A token as the configuration gives it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Shown in logs and in `config check`.
    pub name: String,
    /// One of [`ROLES`].
    pub role: String,
    /// The SHA-256 of the secret, 64 hex digits in lower case.
    pub sha256: String,
    /// Where it was written.
    pub origin: Origin,
}

/// Without the hash: of a token that somebody made up it tells enough to guess it.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} as {} from {}", self.name, self.role, self.origin)
    }
}

impl Entry {
    /// The hash as bytes.
    pub fn hash(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(self.sha256.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(bytes)
    }
}

/// Checks one token's fields.
fn entry(name: &str, role: &str, sha256: &str, origin: Origin) -> Result<Entry, String> {
    let sha256 = sha256.trim().to_lowercase();
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || matches!(c, ':' | ',')) {
        return Err(format!("a token's name is 1 to {MAX_NAME} bytes without control characters, colons and commas"));
    }
    if !ROLES.contains(&role) {
        return Err(format!("token {name:?}: role is {role:?}, but it must be one of \"{}\"", ROLES.join("\", \"")));
    }
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!(
            "token {name:?}: sha256 must be the SHA-256 of the token as 64 hex digits; `tidegate token` prints a token with it"
        ));
    }
    Ok(Entry { name: name.to_owned(), role: role.to_owned(), sha256, origin })
}

/// Reads the value of `tokens` in a file.
pub fn from_toml(
    value: &Spanned<DeValue<'_>>,
    place: &dyn Fn(usize) -> Origin,
    faults: &mut Vec<String>,
) -> Vec<Entry> {
    let DeValue::Array(items) = value.get_ref() else {
        faults.push(format!(
            "{}: tokens are written as [[tokens]] with name, role and sha256",
            place(value.span().start)
        ));
        return Vec::new();
    };
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        let origin = place(item.span().start);
        let result = match item.get_ref() {
            DeValue::Table(table) => from_table(table, &origin, place),
            _ => Err("a token is a table with name, role and sha256".to_owned()),
        };
        match result {
            Ok(token) => read.push(token),
            Err(why) => faults.push(format!("{origin}: {why}")),
        }
    }
    repeated(&read, faults);
    read
}

fn from_table(table: &DeTable<'_>, origin: &Origin, place: &dyn Fn(usize) -> Origin) -> Result<Entry, String> {
    const FIELDS: [&str; 4] = ["name", "role", "sha256", "sha256_file"];
    let mut fields: [Option<&str>; 4] = [None; 4];
    for (name, value) in table {
        let Some(i) = FIELDS.iter().position(|field| name.get_ref() == field) else {
            let near = keys::nearest(name.get_ref(), FIELDS)
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            return Err(format!("unknown key {:?} of a token (at {}){near}", name.get_ref(), place(name.span().start)));
        };
        let DeValue::String(text) = value.get_ref() else {
            return Err(format!("{} of a token must be a text in quotes", FIELDS[i]));
        };
        fields[i] = Some(text);
    }
    let [name, role, sha256, file] = fields;
    let name = name.ok_or("a token needs a name")?;
    let role = role.ok_or_else(|| format!("token {name:?} needs a role: \"{}\"", ROLES.join("\", \"")))?;
    let sha256 = match (sha256, file) {
        (Some(hash), None) => hash.to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).map_err(|e| {
            format!("token {name:?}: sha256_file: cannot read {file}: {e}; check the path and its permissions")
        })?,
        (None, None) => {
            return Err(format!("token {name:?} needs its sha256 (or sha256_file); `tidegate token` prints one"));
        }
        (Some(_), Some(_)) => {
            return Err(format!("token {name:?} has both sha256 and sha256_file; keep one of them"));
        }
    };
    entry(name, role, &sha256, origin.clone())
}

/// Reads `TIDEGATE_TOKENS`: `name:role:sha256`, several with commas between them.
pub fn from_env(variable: &str, text: &str, faults: &mut Vec<String>) -> Vec<Entry> {
    let mut read = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let fields: Vec<&str> = part.split(':').map(str::trim).collect();
        let result = match fields[..] {
            [name, role, sha256] => entry(name, role, sha256, Origin::Env(variable.to_owned())),
            _ => Err("each token is written as name:role:sha256, with commas between them".to_owned()),
        };
        match result {
            Ok(token) => read.push(token),
            Err(why) => faults.push(format!("{variable}: {why}")),
        }
    }
    repeated(&read, faults);
    read
}

fn repeated(tokens: &[Entry], faults: &mut Vec<String>) {
    for (i, token) in tokens.iter().enumerate() {
        if let Some(first) = tokens[..i].iter().find(|first| first.name == token.name || first.sha256 == token.sha256) {
            faults.push(format!(
                "{}: tokens {:?} and {:?} share their name or their sha256; give each its own",
                token.origin, first.name, token.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::Layers;

    fn faults(toml: &str) -> Vec<String> {
        let mut layers = Layers::default();
        layers.read_toml("t.toml", toml);
        layers.faults
    }

    #[test]
    fn tokens_are_checked() {
        let hash = "a".repeat(64);
        let good = format!("[[tokens]]\nname = \"web\"\nrole = \"shop\"\nsha256 = \"{hash}\"\n");
        assert_eq!(faults(&good), Vec::<String>::new());
        for (toml, want) in [
            ("tokens = 5".to_owned(), "tokens are written as [[tokens]]"),
            (good.replace("shop", "boss"), "role is \"boss\", but it must be one of \"read\", \"shop\", \"ops\""),
            (good.replace(&hash, "abc"), "sha256 must be the SHA-256"),
            (good.replace("role", "rolle"), "unknown key \"rolle\" of a token (at t.toml:3); did you mean \"role\"?"),
            (good.replace("sha256 =", "#"), "needs its sha256"),
            (format!("{good}{good}"), "share their name"),
        ] {
            let faults = faults(&toml);
            assert!(faults.len() == 1 && faults[0].contains(want), "{toml}: {faults:?}");
        }
    }

    #[test]
    fn tokens_come_from_the_environment() {
        let mut faults = Vec::new();
        let hash = "B".repeat(64);
        let read = super::from_env("V", &format!("web:shop:{hash}, ops:ops:{}", "c".repeat(64)), &mut faults);
        assert_eq!((read.len(), faults.len()), (2, 0), "{faults:?}");
        assert_eq!(read[0].sha256, "b".repeat(64));
        super::from_env("V", "web", &mut faults);
        assert!(faults[0].starts_with("V: each token is written as name:role:sha256"), "{faults:?}");
    }
}
