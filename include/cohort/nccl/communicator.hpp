// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::communicator`: an NCCL communicator, made, split, finalised and aborted by
/// awaiting.
///
/// \code
/// auto gpus = co_await cohort::nccl::make_communicator(world);  // one device for each rank
/// cohort::device::stream compute;
/// cohort::device::vector<float> gradient(1000, compute);
/// co_await cohort::nccl::all_reduce(gpus, compute, gradient, cohort::op::sum);
/// \endcode

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/look_task.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// An NCCL communicator over the ranks of an MPI communicator, one device each. A handle: copies
/// are the same communicator.
///
/// When the last handle goes, the operations that were started end, then it is finalised and
/// destroyed in the background; `io.run()` returns after that, and `MPI_Finalize` waits for it.
/// What has not ended after `leave_bound` is leaked and named; from then on nothing is freed on
/// that device, because it might wait for ever. Handles must not outlive the context.
///
/// *Threads*: any. Operations must be started in one order on all ranks, over *all* communicators
/// of a device, because that is the order in which they are launched there. Making and splitting
/// count as operations of that order. All communicators of a device belong to one io_context.
class communicator {
 public:
  using executor_type = asio::io_context::executor_type;

  /// No communicator. Every verb on it completes with errc::invalid_communicator.
  communicator() noexcept {}
  explicit communicator(std::shared_ptr<communicator_state> state)
      : handle_(std::make_shared<const handle>(std::move(state))) {}

  [[nodiscard]] int rank() const noexcept { return state()->rank; }
  [[nodiscard]] int size() const noexcept { return state()->size; }
  [[nodiscard]] int device() const noexcept { return state()->device; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] executor_type get_executor() const noexcept {
    return state()->source.engine().get_executor();
  }
  /// NCCL's own, or null once it has ended. Calls of your own must not come between those of the
  /// library: await everything first.
  [[nodiscard]] ncclComm_t native() const {
    return state()->source.exclusively([&] { return state()->native; });
  }
  /// What went wrong last on this communicator and rank, with all facts.
  [[nodiscard]] failure last_failure() const { return state()->last_failure(); }
  [[nodiscard]] phase stands() const noexcept { return state()->stands.load(); }

  /// The ranks of equal `color` (negative: none, and the result is empty), ordered by `key`, on the
  /// same devices. Waits for the operations of this one first.
  /// `void(std::exception_ptr, communicator)`. *Collective*. *Source*: a split of the MPI
  /// communicator and a fresh communicator: `ncclCommSplit` may wait for operations of the parent
  /// on another rank.
  template <class Token = default_token>
  auto split(int color, int key = 0, Token&& token = Token()) const;

  /// Ends it now: waits for its operations, finalises and destroys it. `void(std::exception_ptr)`,
  /// with errc::stalled after `leave_bound`. *Collective*. Verbs fail with errc::closed from then
  /// on.
  template <class Token = default_token>
  auto finalize(Token&& token = Token()) const;

  /// Ends it now, whatever is in flight: its operations end with errc::aborted, and those of the
  /// peers with ncclRemoteError. `void(std::exception_ptr)`, when NCCL has aborted; that happens on
  /// a thread, because it blocks. Other communicators go on.
  template <class Token = default_token>
  auto abort(Token&& token = Token()) const;

  /// For verbs. Null for an empty handle.
  [[nodiscard]] const std::shared_ptr<communicator_state>& state() const noexcept {
    static const std::shared_ptr<communicator_state> none;
    return handle_ ? handle_->state : none;
  }

 private:
  struct handle {
    explicit handle(std::shared_ptr<communicator_state> its) noexcept : state(std::move(its)) {}
    handle(const handle&) = delete;
    ~handle() { state->source.leaving().leave(*state); }
    std::shared_ptr<communicator_state> state;
  };
  std::shared_ptr<const handle> handle_;
};

/// Makes an NCCL communicator over the ranks of `world`. `void(std::exception_ptr, communicator)`.
///
/// The ranks first tell each other over MPI what they have. If one has no device, two have the
/// same, or versions of NCCL or options differ, *all* ranks get the same error, which names the
/// ranks, and NCCL is not called. Rank 0 then makes the id and MPI carries it. Nothing blocks the
/// loop. It cannot be cancelled, nor shortened by a deadline; NCCL's init is bounded by
/// `init_bound`. *Collective over* `world`. *Errors*: rank_error with errc::no_device,
/// errc::wrong_device (one device for two ranks); mismatch_error; category `nccl` from init.
/// *Example*: `auto gpus = co_await cohort::nccl::make_communicator(world);`
template <class Token = default_token>
auto make_communicator(const cohort::communicator& world,
                       const communicator_options& options = communicator_options(),
                       Token&& token = Token());

/// Makes an NCCL communicator over several devices of each rank of `world`, and one handle for each
/// device of this one, in the order of `devices`. `void(std::exception_ptr,
/// std::vector<communicator>)`.
///
/// The ranks of NCCL are those of the devices: those of rank 0 of MPI come first, in the order that
/// it gives, then those of rank 1, and so on. Ranks may bring different numbers of devices, but at
/// least one. Averages divide by the number of devices. Operations are started on each handle, or
/// together by a \ref set_group. A failure of one of the handles ends the others too. `split` is
/// refused with errc::not_supported. `options.device` is not used; all else is as above, and a
/// rank_error names ranks of NCCL, but for errc::invalid_argument (no device, or too many), which
/// names ranks of MPI.
/// *Example*: `auto gpus = co_await cohort::nccl::make_communicators(world, devices);`
template <class Token = default_token>
auto make_communicators(const cohort::communicator& world, std::vector<int> devices,
                        const communicator_options& options = communicator_options(),
                        Token&& token = Token());

/// The same over a communicator that somebody else has made, over the same ranks in the same order,
/// as a non-blocking one: calls on a blocking one would stop the loop until the peers call.
/// It stays theirs: it is never finalised, and aborted only if `options.abort_borrowed` says so.
/// The options' `device` and `config` are not used.
template <class Token = default_token>
auto borrow_communicator(const cohort::communicator& world, ncclComm_t native,
                         const communicator_options& options = communicator_options(),
                         Token&& token = Token());

namespace detail {

/// What a process is to make: communicators of its devices, and their places in the queues.
struct making {
  communicator_options options;
  std::vector<int> devices;
  std::vector<turn> places;
  bool several = false;  // the ranks may bring different numbers of devices
  ncclComm_t theirs = nullptr;
  problem bad;  ///< here, before anything has been asked; it takes part, so that all hear of it
  const void* orderer = nullptr;
};

// See life/making.ipp.

progress::look_task<std::vector<communicator>> make_all(cohort::communicator world, making what);
/// One device.
making one_device(communicator_options options, int device, turn place, ncclComm_t theirs = nullptr,
                  problem bad = {}, const void* orderer = nullptr);
/// The device of the options, or -1 where there is none: that is told to all ranks then.
int device_for(int wanted);
turn place_for(const cohort::communicator& world, int device);
inline issue_source& source_of(const cohort::communicator& world) {
  return asio::use_service<issue_source>(world.get_executor().context());
}
progress::look_task<std::vector<communicator>> split(communicator parent, int color, int key,
                                                     turn place);
progress::look_task<> finalize(std::shared_ptr<communicator_state> state);
progress::look_task<> abort(std::shared_ptr<communicator_state> state);

/// Begins at once, so that what is made of one communicator of MPI is made in the order of the
/// calls. The handler gets what `take` makes of the task's result.
template <class Handler, class T, class Take>
void begin_for(Handler&& handler, issue_source& source, const char* verb,
               progress::look_task<T> work, Take take) {
  using posted = progress::posted_handler<std::decay_t<Handler>>;
  auto waiting = std::make_unique<posted>(std::forward<Handler>(handler), source.engine());
  auto done = [mine = std::move(waiting), take](std::exception_ptr why, auto... made) mutable {
    mine->post(std::move(why), take(std::move(made))...);
  };
  progress::begin_look_task(std::move(work), {.verb = verb}, std::move(done));
}

/// The same of something that cannot begin.
template <class Handler, class... Nothing>
void refuse(Handler&& handler, std::exception_ptr why, Nothing... nothing) {
  progress::post_without_engine(std::forward<Handler>(handler),
                                [why = std::move(why), nothing...](auto mine) mutable {
                                  std::move(mine)(std::move(why), std::move(nothing)...);
                                });
}

inline communicator the_only(std::vector<communicator> made) {
  return made.empty() ? communicator() : std::move(made.front());
}
inline std::exception_ptr no_communicator(const char* verb) {
  return std::make_exception_ptr(
      cohort::error(errc::invalid_communicator, std::string("nccl ") + verb + ": no communicator"));
}

// A place in the device's queue is taken when the operation is started, not when it is named: an
// awaitable that is never awaited must not hold the queue.

struct start_make {
  template <class Handler>
  void operator()(Handler&& handler, const cohort::communicator& world, ncclComm_t theirs,
                  const communicator_options& options, int device) const {
    begin_for(std::forward<Handler>(handler), source_of(world), "nccl make_communicator",
              make_all(world, one_device(options, device, place_for(world, device), theirs)),
              &the_only);
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
    begin_for(std::forward<Handler>(handler), source_of(world), "nccl make_communicator",
              make_all(world, std::move(what)), std::identity());
  }
};

struct start_split {
  template <class Handler>
  void operator()(Handler&& handler, const communicator& parent, int color, int key) const {
    if (!parent) {
      return refuse(std::forward<Handler>(handler), no_communicator("split"), communicator());
    }
    issue_source& source = parent.state()->source;
    begin_for(std::forward<Handler>(handler), source, "nccl split",
              split(parent, color, key, source.reserve(parent.device())), &the_only);
  }
};

struct start_ending {
  template <class Handler>
  void operator()(Handler&& handler, const communicator& which, bool at_once) const {
    const char* const verb = at_once ? "abort" : "finalize";
    if (!which) return refuse(std::forward<Handler>(handler), no_communicator(verb));
    begin_for(std::forward<Handler>(handler), which.state()->source, verb,
              at_once ? abort(which.state()) : finalize(which.state()), std::identity());
  }
};

}  // namespace detail

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

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/life/making.ipp>
#endif

#endif
