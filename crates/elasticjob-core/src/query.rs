//! Reads of the registry and their answers.

use crate::tree::Node;

/// A question to the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// The node of that path.
    Node(String),
    /// The names of its children.
    Children(String),
}

impl Query {
    /// The node that it is about.
    pub fn path(&self) -> &str {
        match self {
            Query::Node(path) | Query::Children(path) => path,
        }
    }
}

/// The answer to a [`Query`]; `None` when the node is missing.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Of [`Query::Node`].
    Node(Option<Node>),
    /// Of [`Query::Children`].
    Children(Option<Vec<String>>),
}

impl Answer {
    /// The node that was asked for.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Answer::Node(node) => node.as_ref(),
            Answer::Children(_) => None,
        }
    }

    /// The children that were asked for, none for a missing node.
    pub fn children(&self) -> &[String] {
        match self {
            Answer::Children(Some(names)) => names,
            Answer::Children(None) | Answer::Node(_) => &[],
        }
    }
}
