//! Numbers, texts and lists as ZooKeeper writes them: big-endian, lengths before contents.

use bytes::{Buf, Bytes};

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode the server's answer: {0}")]
pub struct Malformed(pub &'static str);

/// Writes into a buffer.
pub(crate) trait Put {
    fn int(&mut self, value: i32);
    fn long(&mut self, value: i64);
    fn flag(&mut self, value: bool);
    fn buffer(&mut self, value: &[u8]);
    fn text(&mut self, value: &str) {
        self.buffer(value.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn int(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn flag(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    fn buffer(&mut self, value: &[u8]) {
        // No caller has data of more than 2 GB: the server takes 1 MB.
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.extend_from_slice(value);
    }
}

/// Reads from a buffer; every length is checked against what is there.
pub(crate) trait Take {
    fn int(&mut self) -> Result<i32, Malformed>;
    fn long(&mut self) -> Result<i64, Malformed>;
    fn flag(&mut self) -> Result<bool, Malformed>;
    /// A null buffer, written as length -1, is an empty one.
    fn buffer(&mut self) -> Result<Bytes, Malformed>;
    fn text(&mut self) -> Result<String, Malformed>;
    /// The length of a list, which is never more than the bytes that are left: each entry has one at least.
    fn count(&mut self) -> Result<usize, Malformed>;
}

impl Take for Bytes {
    fn int(&mut self) -> Result<i32, Malformed> {
        self.try_get_i32().map_err(|_| Malformed("the answer ends within a number"))
    }

    fn long(&mut self) -> Result<i64, Malformed> {
        self.try_get_i64().map_err(|_| Malformed("the answer ends within a number"))
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        Ok(self.try_get_u8().map_err(|_| Malformed("the answer ends within a boolean"))? != 0)
    }

    fn buffer(&mut self) -> Result<Bytes, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(Bytes::new());
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
        if length > self.len() {
            return Err(Malformed("a length exceeds the rest of the answer"));
        }
        Ok(self.split_to(length))
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.buffer()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8"))
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.int()?;
        if count == -1 {
            return Ok(0);
        }
        let count = usize::try_from(count).map_err(|_| Malformed("a length is negative"))?;
        if count > self.len() { Err(Malformed("a list is longer than the rest of the answer")) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = Vec::new();
        bytes.int(-7);
        bytes.long(i64::MIN);
        bytes.flag(true);
        bytes.buffer(b"");
        bytes.text("Zürich");
        let mut bytes = Bytes::from(bytes);
        assert_eq!((bytes.int(), bytes.long(), bytes.flag()), (Ok(-7), Ok(i64::MIN), Ok(true)));
        assert_eq!((bytes.buffer(), bytes.text()), (Ok(Bytes::new()), Ok("Zürich".to_owned())));
        assert!(bytes.int().is_err());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in [[0x7f, 0xff, 0xff, 0xff, 1], [0x80, 0, 0, 0, 1], [0, 0, 0, 2, 1]] {
            let bytes = Bytes::copy_from_slice(&bytes);
            assert!(bytes.clone().buffer().is_err() && bytes.clone().text().is_err() && bytes.clone().count().is_err());
        }
        assert_eq!(Bytes::from_static(&[0xff; 4]).buffer(), Ok(Bytes::new()), "null");
        assert!(Bytes::from_static(&[0, 0, 0, 1, 0xff]).text().is_err(), "not UTF-8");
    }
}
