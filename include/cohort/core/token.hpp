// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The last argument of every verb: how its caller hears of the end.
///
/// Here is `cohort::blocking`, for files that read nothing of Asio (`cohort/blocking.hpp`). The
/// other tokens are Asio's, `cohort::as_future` and `cohort::as_tuple`: core/asio.hpp brings them,
/// and with it `default_token`.

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace cohort {

/// The calling thread waits, and the call returns what `co_await` would, or throws the same. For
/// plain threads and functions that are no coroutines.
///
/// Meanwhile the thread looks for all that is pending on the same loop, and runs that if this takes
/// longer: other operations go on, handlers are called, deadlines pass. Where a `progress_thread`
/// runs the loop the thread sleeps until that has done it. Some ranks may block where others await.
///
/// *Errors*: as of the awaited call; besides, before anything is started,
/// `std::errc::resource_deadlock_would_occur` inside a handler of the loop, coroutines included,
/// and errc::wrong_thread where another thread of the program has run the loop and not stopped it.
/// (A thread in whose loop nothing of this library has happened yet is not seen: its handlers and
/// those that are called here may then run side by side.) What a handler throws that is called
/// meanwhile comes out of the call, once that is over. *Cancellation*: none; `sync_wait` of a
/// coroutine has deadlines. *Cost*: docs/benchmarks.md; no allocation for verbs on communicators.
struct blocking_t {
  constexpr blocking_t() noexcept {}
};
inline constexpr blocking_t blocking{};

/// The token that every verb uses when none is given: `co_await verb(...)` inside an awaitable. As
/// `asio::use_awaitable`.
struct default_token {
  constexpr default_token() noexcept {}
};

namespace detail {

/// Stands for Asio where a header that does not read it leaves a question open. core/asio.hpp and
/// what is built on it answer for all arguments; until then the answer is the primary template's.
struct with_asio;

/// Whether Asio takes a token for completions of that signature.
template <class Asio, class Token, class Signature>
inline constexpr bool is_token_of = false;

/// Whether there are tokens but `cohort::blocking`.
template <class Asio, class... Arguments>
inline constexpr bool has_tokens = false;

/// Whether a type is the loop that communicators are made on.
template <class Asio, class Context>
inline constexpr bool is_loop = false;

}  // namespace detail

/// Satisfied by completion tokens that can take completions of signature `Signature`.
template <class Token, class Signature>
concept completion_token_for =
    std::same_as<std::remove_cvref_t<Token>, blocking_t> ||
    std::same_as<std::remove_cvref_t<Token>, default_token> ||
    detail::is_token_of<detail::with_asio, std::remove_cvref_t<Token>, Signature>;

/// What a verb returns that is declared only to say what is wrong with a call. Asio takes it after
/// `co_await`, so that nothing else is said.
struct explained {
  template <class Frame>
  std::nullptr_t operator()(Frame*) const noexcept {
    return nullptr;
  }
};

}  // namespace cohort
