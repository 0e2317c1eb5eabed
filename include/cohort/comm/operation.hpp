// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How verbs that await start: any token of Asio for the bodies of comm/body.hpp.

#include <cohort/comm/body.hpp>
#include <cohort/comm/communicator_state.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/blocking.hpp>

#include <exception>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort::comm::detail {

template <class Signature>
struct start_operation {
  template <class Handler, class Body>
  void operator()(Handler&& handler, communicator_ref comm, Body&& body) const;
};

/// What a token completes with. An awaitable throws what it is given, and what it is to say is
/// which operation has failed, with what values, so it gets an exception in place of the code.
template <class Token, class Signature>
struct completion {
  using type = Signature;
};
template <class Token>
inline constexpr bool is_awaited = std::is_same_v<Token, default_token>;
template <class Executor>
inline constexpr bool is_awaited<asio::use_awaitable_t<Executor>> = true;
template <class Token, class... Values>
  requires is_awaited<Token>
struct completion<Token, void(std::error_code, Values...)> {
  using type = void(std::exception_ptr, Values...);
};

template <class Token, class Body>
struct initiation<cohort::detail::with_asio, Token, Body> {
  using signature = typename completion<std::remove_cvref_t<Token>, typename Body::signature>::type;
  static auto start(const communicator& comm, Body&& body, Token& token) {
    return asio::async_initiate<Token, signature>(start_operation<signature>{}, token, comm.ref(),
                                                  std::move(body));
  }
};

}  // namespace cohort::comm::detail

#include <cohort/comm/make_communicator.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/comm/requests/typed_operation.hpp>

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/detail/backend_opening.ipp>
#include <cohort/comm/detail/communicator_state.ipp>
#include <cohort/comm/requests/blocking_call.ipp>
#include <cohort/comm/requests/source.ipp>
#endif
