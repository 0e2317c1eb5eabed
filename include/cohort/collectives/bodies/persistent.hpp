// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The bodies of a persistent operation: of one run, which is that of the verb with another `post`,
/// and of waiting for a run that was started before.

#include <cohort/collectives/bodies/call.hpp>
#include <cohort/collectives/bodies/movement.hpp>
#include <cohort/collectives/bodies/reduction.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/persistent.hpp>

#include <atomic>
#include <climits>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::collectives::detail {

/// MPI's persistent request of a call whose size in bytes fits an int.
inline int make_persistent(const comm::collective_call& call, MPI_Comm on, MPI_Request* made) {
  namespace make = mpi::persistent;
  const int count = static_cast<int>(call.count);
  const void* const in = call.in;
  void* const out = call.out;
  const MPI_Datatype type = call.type;
  const MPI_Info info = MPI_INFO_NULL;
  switch (call.kind) {
    case op_kind::all_reduce:
      return make::all_reduce(in, out, count, type, call.op, on, info, made);
    case op_kind::reduce:
      return make::reduce(in, out, count, type, call.op, call.root, on, info, made);
    case op_kind::reduce_scatter:
      return make::reduce_scatter(in, out, count, type, call.op, on, info, made);
    case op_kind::broadcast:
      return make::broadcast(out, count, type, call.root, on, info, made);
    case op_kind::all_gather:
      return make::all_gather(in, count, type, out, count, type, on, info, made);
    case op_kind::gather:
      return make::gather(in, count, type, out, count, type, call.root, on, info, made);
    case op_kind::scatter:
      return make::scatter(in, count, type, out, count, type, call.root, on, info, made);
    case op_kind::all_to_all:
      return make::all_to_all(in, count, type, out, count, type, on, info, made);
    case op_kind::barrier:
      return make::barrier(on, info, made);
    default:
      return MPI_ERR_OTHER;
  }
}

/// Whether MPI has requests of this kind that work.
[[nodiscard]] constexpr bool has_persistent(op_kind kind) noexcept {
  switch (kind) {
    case op_kind::all_gather:
    case op_kind::gather:
    case op_kind::scatter:
      return mpi::persistent::moves_blocks;
    default:
      return mpi::persistent::exists;
  }
}

/// What MPI has for a verb that no backend knows.
template <class Verb>
struct in_mpi;
template <>
struct in_mpi<scan_verb> {
  static constexpr auto make = mpi::persistent::scan;
};
template <>
struct in_mpi<exclusive_scan_verb> {
  static constexpr auto make = mpi::persistent::exclusive_scan;
};
template <>
struct in_mpi<neighbor_all_gather_verb> {
  static constexpr auto make = mpi::persistent::neighbor_all_gather;
};
template <>
struct in_mpi<neighbor_all_to_all_verb> {
  static constexpr auto make = mpi::persistent::neighbor_all_to_all;
};

/// The requests of such verbs, whose elements an int can count.
template <class Verb, class In, class Out>
int make_persistent(movement_body<Verb, In, Out>& of, MPI_Comm on, MPI_Request* made) {
  const auto [in, out] = of.ends();
  return in_mpi<Verb>::make(in.data, static_cast<int>(in.count), in.type, out.data,
                            static_cast<int>(out.count), out.type, on, MPI_INFO_NULL, made);
}
template <class Verb, class Op, class T>
int make_reduction(const void* in, T* out, std::size_t count, MPI_Comm on, MPI_Request* made) {
  return in_mpi<Verb>::make(in, out, static_cast<int>(count), mpi::reduction_type_of<T>(),
                            mpi::op_of<Op, T>(), on, MPI_INFO_NULL, made);
}
template <class Verb, class Buffer, class Op>
int make_persistent(in_place_reduction_body<Verb, Buffer, Op>& of, MPI_Comm on, MPI_Request* made) {
  return make_reduction<Verb, Op>(MPI_IN_PLACE, of.elements.in(of.data.view()), of.data.count(), on,
                                  made);
}
template <class Verb, class In, class Out, class Op>
int make_persistent(reduction_body<Verb, In, Out, Op>& of, MPI_Comm on, MPI_Request* made) {
  return make_reduction<Verb, Op>(of.sent.in(of.in.view()), of.target(), of.in.count(), on, made);
}

/// Whether an int can count them, as all ranks find it.
template <class Verb, class In, class Out>
[[nodiscard]] bool fits_request(const movement_body<Verb, In, Out>&) {
  return true;  // else it would not have been kept
}
template <class Verb, class Buffer, class Op>
[[nodiscard]] bool fits_request(const in_place_reduction_body<Verb, Buffer, Op>& of) {
  return of.data.count() <= INT_MAX;
}
template <class Verb, class In, class Out, class Op>
[[nodiscard]] bool fits_request(const reduction_body<Verb, In, Out, Op>& of) {
  return of.in.count() <= INT_MAX;
}

/// What a persistent operation, its runs and what waits for one share.
class runs {
 public:
  explicit runs(const communicator& on) noexcept : comm_(on) {}
  runs(const runs&) = delete;
  runs& operator=(const runs&) = delete;
  /// The request of a run that has not ended is MPI's.
  ~runs() {
    if (request_ == MPI_REQUEST_NULL || is_in_flight()) return;
    comm::request_source& source = comm_.state()->source;
    const comm::request_source::guard hold(source);
    if (source.usable() == errc{}) MPI_Request_free(&request_);
  }

  [[nodiscard]] const communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] bool is_in_flight() const noexcept {
    return in_flight_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool has_request() const {
    if (!comm_) return false;
    const comm::request_source::guard hold(comm_.state()->source);
    return request_ != MPI_REQUEST_NULL;
  }

  /// Whether nobody else has begun.
  [[nodiscard]] bool begin() noexcept { return !in_flight_.exchange(true); }
  /// With MPI locked. The request is made by the first run that MPI does.
  template <class Call>
  int start(comm::poster& post, Call& call) {
    if (request_ == MPI_REQUEST_NULL) {
      const int rc = make_persistent(call, post.native(), &request_);
      if (rc != MPI_SUCCESS) return rc;
    }
    const int rc = post.add(MPI_Start(&request_), request_);
    by_request_ = rc == MPI_SUCCESS;
    return rc;
  }
  void end(std::error_code error, const comm::outcome_of_requests& seen) {
    std::optional<comm::backend_completion> waiting;
    {
      const comm::request_source::guard hold(comm_.state()->source);
      // Open MPI frees a persistent request that has failed, and leaves null.
      if (std::exchange(by_request_, false)) request_ = seen.left;
      last_ = error;
      waiting.swap(waiter_);
      in_flight_.store(false, std::memory_order_release);
    }
    if (waiting) (*waiting)(error);
  }
  /// The run has gone without an end that it was told of: it has failed in a call that blocks, or
  /// the context goes. MPI may have freed the request, or may still work on it.
  void abandon() noexcept {
    std::optional<comm::backend_completion> waiting;
    {
      const comm::request_source::guard hold(comm_.state()->source);
      if (std::exchange(by_request_, false)) request_ = MPI_REQUEST_NULL;
      last_ = asio::error::operation_aborted;
      in_flight_.store(false, std::memory_order_release);
      waiting.swap(waiter_);
      // As the context goes it takes what waits along.
      if (waiting && comm_.state()->engine.stopped()) {
        std::exchange(waiting, std::nullopt)->in_look(last_);
      }
    }
    if (waiting) (*waiting)(last_);
  }
  /// With MPI locked.
  void wait(comm::poster& post) {
    if (is_in_flight()) {
      waiter_ = post.completion();
      post.hold();
    } else {
      post.operation().fail(last_);
    }
  }
  /// What is to be said of a run that has failed.
  void keep_text(std::string text) {
    const comm::request_source::guard hold(comm_.state()->source);
    text_ = std::move(text);
  }
  [[nodiscard]] std::string text() const {
    const comm::request_source::guard hold(comm_.state()->source);
    return text_;
  }
  [[nodiscard]] errc check_wait() const noexcept {
    return waiter_ ? errc::invalid_argument : errc{};
  }

 private:
  communicator comm_;
  std::atomic<bool> in_flight_{false};
  // With MPI locked:
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool by_request_ = false;  // the run that is in flight
  std::error_code last_;
  std::string text_;
  std::optional<comm::backend_completion> waiter_;
};

/// The view, if a request of MPI may have it from run to run. A copy would be of one run; and
/// whether a request does a run must be the same on all ranks.
template <class T>
[[nodiscard]] buffer_view<T> side_by_side(buffer_view<T> view) {
  if (view.contiguous()) return view;
  throw error(errc::not_supported,
              "a persistent collective of elements that have gaps between them");
}

/// One run. A backend takes it as it takes the verb.
template <class Body>
struct run_body : Body {
  /// Who lets go of a run would leave a request that the other ranks keep.
  static constexpr comm::cancels cancellation = comm::cancels::never;

  run_body(std::shared_ptr<runs> of_, Body&& body) : Body(std::move(body)), of(std::move(of_)) {}
  run_body(run_body&&) = default;
  ~run_body() {
    if (of && began) of->abandon();
  }

  /// The first thing a start does.
  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    if (!began) began = of->begin();
    return began ? Body::check(state) : errc::invalid_argument;
  }
  void explain(failure_text& text) const {
    Body::explain(text);
    if (began) {
      of->keep_text(text.str());
    } else {
      text.note("it is in flight already");
    }
  }
  int post(comm::poster& post) {
    // By what is equal on all ranks: MPI matches no request with a plain call.
    const bool may_keep = mpi::persistent::exists && !post.base().is_inter();
    if constexpr (requires { this->call(); }) {
      const comm::collective_call call = this->call();
      int size = 1;
      MPI_Type_size(call.type, &size);
      const std::size_t most = INT_MAX / static_cast<std::size_t>(size > 0 ? size : 1);
      if (may_keep && has_persistent(call.kind) && call.count <= most) {
        return of->start(post, call);
      }
    } else {
      Body& body = *this;
      if (may_keep && fits_request(body)) return of->start(post, body);
    }
    return Body::post(post);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests& seen) {
    auto values = Body::finish(error, seen);
    if (std::exchange(began, false)) of->end(error, seen);
    return values;
  }

  std::shared_ptr<runs> of;
  mutable bool began = false;
};

/// Waits for the run in flight.
struct finish_body {
  using signature = void(std::error_code);
  static constexpr bool unnumbered = true;  // it starts nothing
  static constexpr const char* name = "finish";
  static constexpr comm::cancels cancellation = comm::cancels::never;

  explicit finish_body(std::shared_ptr<runs> of_) noexcept : of(std::move(of_)) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    return of->check_wait();
  }
  void explain(failure_text& text) const { text.note("of the run: " + of->text()); }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(comm::poster& post) const {
    of->wait(post);
    return MPI_SUCCESS;
  }
  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) const { return {}; }

  std::shared_ptr<runs> of;
};

}  // namespace cohort::collectives::detail
