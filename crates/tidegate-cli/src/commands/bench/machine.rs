//! On what a bench was measured.

use serde::Serialize;

/// The machine, the versions, the day.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// This program's version.
    pub tidegate: &'static str,
    /// `release` or `debug`.
    pub build: &'static str,
    /// The Redis that private servers run, if one is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
    /// When, UTC.
    pub date: String,
}

impl Machine {
    /// This one. What cannot be read is empty or 0.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
            line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal");
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_bytes: kib.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1_024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            tidegate: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            redis: super::server::version(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1_u32 << 30);
        format!(
            "{}, {} cores, {gib:.0} GiB, Linux {}; tidegate {} ({} build){}; {}",
            self.cpu,
            self.cores,
            self.kernel,
            self.tidegate,
            self.build,
            self.redis.as_ref().map_or_else(String::new, |redis| format!(", {redis}")),
            self.date
        )
    }
}
