//! Values into bytes and back: [`Json`] by default, [`Postcard`](self::Postcard) behind its feature, or one's own.

use std::error::Error as StdError;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::cache::Packing;

/// Longest payload, packed or not, bytes: a value of 16 MiB and what a codec writes beside it. Nothing that claims to be
/// longer is unpacked.
pub const MAX_PAYLOAD_BYTES: usize = (16 << 20) + (4 << 10);

/// Why a value cannot be encoded or decoded.
pub type CodecError = Box<dyn StdError + Send + Sync>;

/// Turns values into bytes and back.
pub trait Codec<V>: Send + Sync + 'static {
    /// What tells its bytes from another codec's: 1 to 15 are Tidegate's, 16 to 255 yours.
    fn number(&self) -> u8;

    /// The bytes of `value`.
    ///
    /// # Errors
    /// It cannot be written: it is then not cached.
    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError>;

    /// The value of `bytes`.
    ///
    /// # Errors
    /// They are not a value's: a miss.
    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError>;
}

/// JSON, by serde: fields may be added without a new schema number if they have defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<V: Serialize + DeserializeOwned> Codec<V> for Json {
    fn number(&self) -> u8 {
        1
    }

    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Postcard, by serde: about half of JSON's bytes and time. It does not describe itself: **every change of the type
/// needs a new schema number**.
#[cfg(feature = "postcard")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Postcard;

#[cfg(feature = "postcard")]
impl<V: Serialize + DeserializeOwned> Codec<V> for Postcard {
    fn number(&self) -> u8 {
        2
    }

    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError> {
        Ok(postcard::to_stdvec(value)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

/// Packs a payload longer than `above`, unless that makes it no smaller.
pub(super) fn pack(plain: Vec<u8>, above: usize) -> (Packing, Vec<u8>) {
    if plain.len() <= above || plain.len() > MAX_PAYLOAD_BYTES {
        return (Packing::Plain, plain);
    }
    let packed = lz4_flex::block::compress_prepend_size(&plain);
    if packed.len() < plain.len() { (Packing::Lz4, packed) } else { (Packing::Plain, plain) }
}

/// Undoes [`pack`] and hands the plain payload to `then`; `None`: it was never packed like this.
pub(super) fn unpack<T>(packing: Packing, payload: &[u8], then: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    match packing {
        Packing::Plain => then(payload),
        Packing::Lz4 => {
            // The declared size is a stranger's word until it is known to be bounded.
            let (size, block) = lz4_flex::block::uncompressed_size(payload).ok()?;
            if size > MAX_PAYLOAD_BYTES {
                return None;
            }
            let plain = lz4_flex::block::decompress(block, size).ok()?;
            if plain.len() == size { then(&plain) } else { None }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(plain: &[u8], above: usize) -> Option<Vec<u8>> {
        let (packing, payload) = pack(plain.to_vec(), above);
        unpack(packing, &payload, |plain| Some(plain.to_vec()))
    }

    #[test]
    fn long_payloads_are_packed_if_it_helps() {
        assert_eq!(pack(vec![7; 1_024], 1_024).0, Packing::Plain);
        let (packing, payload) = pack(vec![7; 1_025], 1_024);
        assert!(packing == Packing::Lz4 && payload.len() < 100);
        assert_eq!(round_trip(&[7; 1_025], 1_024), Some(vec![7; 1_025]));
        let noise: Vec<u8> = (0_u64..4_000).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        assert_eq!(round_trip(&noise, 0), Some(noise));
    }

    #[test]
    fn a_lie_about_the_size_is_not_believed() {
        let mut payload = lz4_flex::block::compress_prepend_size(&[1; 5_000]);
        payload[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(unpack(Packing::Lz4, &payload, |_| Some(())), None);
        payload[..4].copy_from_slice(&6_000_u32.to_le_bytes());
        assert_eq!(unpack(Packing::Lz4, &payload, |_| Some(())), None);
    }

    proptest! {
        #[test]
        fn garbage_unpacks_to_nothing_or_something_bounded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let size = unpack(Packing::Lz4, &bytes, |plain| Some(plain.len()));
            prop_assert!(size.unwrap_or(0) <= MAX_PAYLOAD_BYTES);
        }
    }
}
