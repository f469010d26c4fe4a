//! Inputs from a seed: something that is right, and then not quite.

use elasticjob_sim::Chance;

/// An input is cut to this.
const BYTES_MAX: usize = 200_000;

/// Pieces that readers of YAML, of expressions and of lines trip over.
const TOKENS: [&str; 56] = [
    "\n",
    "\r\n",
    "\r",
    "\t",
    " ",
    "  ",
    "\u{0}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "é",
    "😀",
    "'",
    "\"",
    "\\",
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "!!int ",
    "!<x> ",
    "!!org.apache.Foo {",
    "|\n",
    ">-\n",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    "#",
    "~",
    "null",
    "true",
    "0x7f",
    "010",
    "1_000",
    "1:30:00",
    "1e400",
    "-1",
    "99999999999999999999",
    "2001-01-01",
    "@-@",
    "@",
    "/",
    "*",
    "?",
    "L",
    "W",
    "#5",
    "LW",
];

/// One of these, cut about, spliced and repeated.
pub(crate) fn text(chance: &mut Chance, corpus: &[&str]) -> Vec<u8> {
    let mut bytes = pick(chance, corpus).as_bytes().to_vec();
    for _ in 0..chance.below(8) {
        mutate(chance, corpus, &mut bytes);
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

/// One of a list.
pub(crate) fn pick<'a, T: ?Sized>(chance: &mut Chance, list: &[&'a T]) -> &'a T {
    list[index(chance, list.len())]
}

/// A number below `bound`.
pub(crate) fn index(chance: &mut Chance, bound: usize) -> usize {
    usize::try_from(chance.below(bound.max(1) as u64)).unwrap_or_default()
}

fn mutate(chance: &mut Chance, corpus: &[&str], bytes: &mut Vec<u8>) {
    let at = index(chance, bytes.len() + 1);
    let end = (at + index(chance, 40)).min(bytes.len());
    match chance.below(9) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
        1 => drop(bytes.drain(at..end)),
        2 => {
            let part = bytes[at..end].to_vec();
            let _ = bytes.splice(at..at, part);
        }
        3 | 4 => {
            let token = pick(chance, &TOKENS).as_bytes().to_vec();
            let _ = bytes.splice(at..at, token);
        }
        5 => {
            let other = pick(chance, corpus).as_bytes();
            let from = index(chance, other.len() + 1);
            let _ = bytes.splice(at..end, other[from..].to_vec());
        }
        // Many of one piece: depth, length, number.
        6 => {
            let token = pick(chance, &TOKENS).as_bytes();
            let most = [10, 1_000, 30_000][index(chance, 3)];
            let times = 1 + index(chance, most);
            let _ = bytes.splice(at..at, token.repeat(times.min(BYTES_MAX / token.len())));
        }
        7 => {
            let random: Vec<u8> = (0..1 + chance.below(20)).map(|_| chance.below(256).to_le_bytes()[0]).collect();
            let _ = bytes.splice(at..end, random);
        }
        _ => bytes.truncate(at),
    }
}
