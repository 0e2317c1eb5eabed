// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What starts making, splitting and ending a communicator: the templates of
/// `nccl/communicator.hpp`, which includes this.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/detail/making.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::nccl::detail {

/// Begins at once, so that what is made of one communicator of MPI is made in the order of the
/// calls. `Result` is taken out of what the task gives.
template <class Result, class Handler>
void begin_making(Handler&& handler, issue_source& source, const char* verb,
                  progress::look_task<std::vector<communicator>> work) {
  using posted = progress::posted_handler<std::decay_t<Handler>>;
  auto waiting = std::make_unique<posted>(std::forward<Handler>(handler), source.engine());
  auto done = [mine = std::move(waiting)](std::exception_ptr why,
                                          std::vector<communicator> made) mutable {
    if constexpr (std::is_same_v<Result, communicator>) {
      mine->post(std::move(why), made.empty() ? communicator() : std::move(made.front()));
    } else {
      mine->post(std::move(why), std::move(made));
    }
  };
  progress::begin_look_task(std::move(work), {.verb = verb}, std::move(done));
}

template <class Result, class Handler>
void begin_making(Handler&& handler, const cohort::communicator& world, making what) {
  begin_making<Result>(std::forward<Handler>(handler),
                       asio::use_service<issue_source>(world.get_executor().context()),
                       "nccl make_communicator", make_all(world, std::move(what)));
}

// A place in the device's queue is taken when the operation is started, not when it is named: an
// awaitable that is never awaited must not hold the queue.

struct start_make {
  template <class Handler>
  void operator()(Handler&& handler, const cohort::communicator& world, ncclComm_t theirs,
                  const communicator_options& options, int device) const {
    begin_making<communicator>(std::forward<Handler>(handler), world,
                               one_device(options, device, place_for(world, device), theirs));
  }
};

struct start_make_several {
  template <class Handler>
  void operator()(Handler&& handler, const cohort::communicator& world, std::vector<int> devices,
                  const communicator_options& options) const {
    making what;
    what.options = options;
    what.several = true;
    for (const int device : devices) what.places.push_back(place_for(world, device));
    what.devices = std::move(devices);
    begin_making<std::vector<communicator>>(std::forward<Handler>(handler), world, std::move(what));
  }
};

template <class Handler, class... Empty>
void refuse_empty(Handler&& handler, const char* verb, Empty... empty) {
  const auto executor = executor_of(handler);
  auto why = std::make_exception_ptr(
      cohort::error(errc::invalid_communicator, std::string("nccl ") + verb + ": no communicator"));
  asio::post(executor,
             [mine = std::decay_t<Handler>(std::forward<Handler>(handler)), why = std::move(why),
              empty...]() mutable { std::move(mine)(std::move(why), std::move(empty)...); });
}

struct start_split {
  template <class Handler>
  void operator()(Handler&& handler, const communicator& parent, int color, int key) const {
    if (!parent) return refuse_empty(std::forward<Handler>(handler), "split", communicator());
    issue_source& source = parent.state()->source;
    begin_making<communicator>(std::forward<Handler>(handler), source, "nccl split",
                               split(parent, color, key, source.reserve(parent.state()->device)));
  }
};

struct start_ending {
  template <class Handler>
  void operator()(Handler&& handler, const communicator& which, bool at_once) const {
    if (!which) return refuse_empty(std::forward<Handler>(handler), at_once ? "abort" : "finalize");
    asio::co_spawn(which.get_executor(), at_once ? abort(which) : finalize(which),
                   std::forward<Handler>(handler));
  }
};

}  // namespace cohort::nccl::detail

namespace cohort::nccl {

template <class Token>
auto make_communicator(const cohort::communicator& world, const communicator_options& options,
                       Token&& token) {
  const int device = detail::device_for(options.device);
  return asio::async_initiate<Token, void(std::exception_ptr, communicator)>(
      detail::start_make{}, token, world, nullptr, options, device);
}

template <class Token>
auto make_communicators(const cohort::communicator& world, std::vector<int> devices,
                        const communicator_options& options, Token&& token) {
  return asio::async_initiate<Token, void(std::exception_ptr, std::vector<communicator>)>(
      detail::start_make_several{}, token, world, std::move(devices), options);
}

template <class Token>
auto borrow_communicator(const cohort::communicator& world, ncclComm_t native,
                         const communicator_options& options, Token&& token) {
  int device = -1;
  static_cast<void>(ncclCommCuDevice(native, &device));
  return asio::async_initiate<Token, void(std::exception_ptr, communicator)>(
      detail::start_make{}, token, world, native, options, device);
}

template <class Token>
auto communicator::split(int color, int key, Token&& token) const {
  return asio::async_initiate<Token, void(std::exception_ptr, communicator)>(
      detail::start_split{}, token, *this, color, key);
}

template <class Token>
auto communicator::finalize(Token&& token) const {
  return asio::async_initiate<Token, void(std::exception_ptr)>(detail::start_ending{}, token, *this,
                                                               false);
}

template <class Token>
auto communicator::abort(Token&& token) const {
  return asio::async_initiate<Token, void(std::exception_ptr)>(detail::start_ending{}, token, *this,
                                                               true);
}

}  // namespace cohort::nccl

#endif
