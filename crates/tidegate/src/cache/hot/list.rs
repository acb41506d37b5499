//! Where the lists of hot keys are kept: in the store if that outlives the process, else in a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::CacheStore;
use tidegate_backend::cache::MAX_HOT_LIST_BYTES;
use tidegate_core::Map;
use tidegate_core::cache::{read_list, write_list};

/// How long a store keeps a list that nobody saves again.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Longest file.
const MAX_FILE_BYTES: usize = 32 << 20;

/// The lists of a process.
pub(in crate::cache) struct Lists {
    store: Arc<dyn CacheStore>,
    file: Option<PathBuf>,
    /// What the file holds, once it was read.
    held: Mutex<Option<Map<Arc<str>, Bytes>>>,
}

impl Lists {
    pub(in crate::cache) fn new(store: Arc<dyn CacheStore>, file: Option<PathBuf>) -> Self {
        Self { store, file, held: Mutex::default() }
    }

    /// The encoded keys that were saved for a namespace, the hottest first; none where there is no list that can be read.
    pub(in crate::cache) async fn of(&self, namespace: &Arc<str>) -> Vec<Bytes> {
        let list = match &self.file {
            Some(file) => self.in_file(file).await.remove(namespace),
            None => self.store.hot_keys(namespace).await.unwrap_or_else(|error| {
                tracing::debug!(%namespace, %error, "the list of hot keys could not be read");
                None
            }),
        };
        let Some(list) = list.filter(|list| list.len() <= MAX_HOT_LIST_BYTES) else { return Vec::new() };
        let keys = read_list(&list);
        if keys.is_none() {
            tracing::warn!(%namespace, "the list of hot keys is damaged and not used");
        }
        keys.unwrap_or_default().into_iter().map(|key| list.slice_ref(key)).collect()
    }

    /// Saves lists; those of other namespaces stay. An empty one says nothing and is not saved.
    pub(in crate::cache) async fn save(&self, lists: Vec<(Arc<str>, Vec<Bytes>)>) {
        let lists = lists.into_iter().filter(|(_, keys)| !keys.is_empty());
        let lists: Vec<(Arc<str>, Bytes)> = lists
            .map(|(namespace, keys)| (namespace, write_list(keys.iter().map(|key| &**key), MAX_HOT_LIST_BYTES).into()))
            .collect();
        if lists.is_empty() {
            return;
        }
        let Some(file) = &self.file else {
            for (namespace, list) in lists {
                if let Err(error) = self.store.save_hot_keys(&namespace, &list, KEPT).await {
                    tracing::debug!(%namespace, %error, "the list of hot keys could not be saved");
                }
            }
            return;
        };
        let mut all = self.in_file(file).await;
        all.extend(lists);
        let mut items: Vec<&[u8]> = Vec::with_capacity(2 * all.len());
        for (namespace, list) in &all {
            items.extend([namespace.as_bytes(), list]);
        }
        let (bytes, path) = (write_list(items, MAX_FILE_BYTES), file.clone());
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
        let replaced = tokio::task::spawn_blocking(move || replace(&path, &bytes)).await;
        if let Ok(Err(error)) = replaced {
            tracing::warn!(file = %file.display(), %error, "the list of hot keys could not be saved");
        }
    }

    async fn in_file(&self, file: &Path) -> Map<Arc<str>, Bytes> {
        if let Some(held) = &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            return held.clone();
        }
        let path = file.to_owned();
        let read = tokio::task::spawn_blocking(move || read(&path)).await.unwrap_or_default();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert(read).clone()
    }
}

/// The lists in a file. A damaged one, which is said, is as none.
fn read(file: &Path) -> Map<Arc<str>, Bytes> {
    let bytes = match std::fs::metadata(file) {
        Ok(found) if found.len() <= MAX_FILE_BYTES as u64 => std::fs::read(file).map(Bytes::from),
        Ok(_) => Err(std::io::Error::other("it is too large")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Map::default(),
        Err(error) => Err(error),
    };
    let lists = bytes.and_then(|bytes| {
        let damaged = || std::io::Error::other("it is damaged");
        let items = read_list(&bytes).ok_or_else(damaged)?;
        let pair = |pair: &[&[u8]]| {
            let [namespace, list] = pair else { return None };
            Some((std::str::from_utf8(namespace).ok()?.into(), bytes.slice_ref(list)))
        };
        items.chunks(2).map(pair).collect::<Option<Map<_, _>>>().ok_or_else(damaged)
    });
    lists.unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "the list of hot keys cannot be read and is not used");
        Map::default()
    })
}

/// Writes the file anew: whoever reads it finds the old one or the new one, whole.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|mut new| {
        new.write_all(bytes)?;
        new.sync_all()
    });
    written.and_then(|()| std::fs::rename(&beside, file)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}
