// SPDX-License-Identifier: GPL-2.0

//! The attributes of the `kernel` crate, as far as the host needs them.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// The tests of a suite are tests on the host, too.
#[proc_macro_attribute]
pub fn kunit_tests(_suite: TokenStream, module: TokenStream) -> TokenStream {
    module
}

/// Takes `#[pin]` off the fields: nothing is moved here that must not be.
#[proc_macro_attribute]
pub fn pin_data(_drop: TokenStream, item: TokenStream) -> TokenStream {
    item.into_iter()
        .map(|token| match token {
            TokenTree::Group(fields) if fields.delimiter() == Delimiter::Brace => {
                TokenTree::Group(Group::new(Delimiter::Brace, without_pin(fields.stream())))
            }
            token => token,
        })
        .collect()
}

fn without_pin(fields: TokenStream) -> TokenStream {
    let mut tokens = fields.into_iter().peekable();
    let mut kept = TokenStream::new();
    while let Some(token) = tokens.next() {
        let pins = |next: &TokenTree| next.to_string() == "[pin]";
        if token.to_string() == "#" && tokens.peek().is_some_and(pins) {
            tokens.next();
        } else {
            kept.extend([token]);
        }
    }
    kept
}
