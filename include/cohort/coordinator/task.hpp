// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One named operation on one rank: its tensors, and the handler that waits for them.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/signature.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::coordination {

using clock = std::chrono::steady_clock;
using comm::tensor;
using mpi::element_kernels;
using mpi::kernels_for;
using mpi::kernels_of;
using mpi::unnamed_element;
using mpi::wire_kernels;

/// What a submission on device memory has beside its tensors.
struct device_part {
  std::vector<comm::device_buffer> buffers;  ///< of the tensors, and of a result
  stream_ref on;
  stream_ref results;  ///< the backend's, once the operation is elected
  until ends = until::complete;
  std::vector<std::shared_ptr<comm::device_mark>> marks;
  comm::device_use use = comm::device_use::run;
  std::shared_ptr<comm::device_graph> graph;  ///< where it is captured, or what it replays

  /// A buffer that nothing orders with what comes after an enqueued operation, or null.
  [[nodiscard]] const comm::device_buffer* without_order() const noexcept {
    if (ends != until::enqueued || on.device >= 0) return nullptr;
    for (const comm::device_buffer& each : buffers) {
      if (each.bytes != 0 && !each.lease && each.where.producer == nullptr) return &each;
    }
    return nullptr;
  }
};
inline constexpr const char* lacks_order =
    ": until::enqueued needs the option `on`, for this span has no stream";

template <class Any>
class set_view;

/// What the data plane knows of a submission. The verb fills it in; the handler lies behind it.
class task : public progress::operation {
 public:
  op_kind kind = op_kind::barrier;
  std::uint8_t flags = 0;
  reduction_code code = reduction_code::no_reduction;
  int root = -1;
  int peer = -1;       ///< message: the rank at the other end
  bool sends = false;  ///< message: from here
  double prescale = 1;
  double postscale = 1;
  compression wanted = compression::none;  ///< until it is submitted
  memory_space space = memory_space::host;
  set_view<void>* view = nullptr;  ///< the set that it is submitted to
  std::unique_ptr<device_part>
      device;                  ///< null on the host, and where neutral elements are brought
  tensor first;                ///< the only one, but for bundles
  std::vector<tensor> others;  ///< of a bundle

  /// For what is not known before the operation runs. `rows` is one number per rank; returns where
  /// the data go. May throw std::bad_alloc.
  using result_function = void* (*)(task&, std::span<const std::int64_t> rows);
  result_function make_result = nullptr;
  void* context = nullptr;          ///< for it
  MPI_Comm* made = nullptr;         ///< group_create: where MPI writes the communicator
  std::vector<std::int64_t> sizes;  ///< all_gather: the own rows; all_to_all: rows for each rank
  std::size_t row_bytes = 0;        ///< of a row of these; arena_add: of the arena
  std::size_t told = 1;             ///< all_gather: how many numbers of rows each rank has

  std::exception_ptr error;
  std::uint64_t contributors = 0;  ///< ranks that bring data; known when it is elected
  std::uint64_t number = 0;        ///< the result of join()

  // The queue's notes.
  protocol::operation_ref operation_ref;
  protocol::name_index name = protocol::none;
  protocol::epoch epoch = 0;
  task* before = nullptr;  ///< all of an instance are linked
  task* after = nullptr;
  clock::time_point submitted;
  clock::time_point deadline = clock::time_point::max();  ///< withdrawn when it passes
  bool linked = false;
  bool started = false;    ///< elected
  bool is_start = false;   ///< of a persistent group, of which several may be pending
  bool withdrawn = false;  ///< asked for; once it is elected: its backend knows of the deadline
  protocol::withdrawal_reason withdrawn_for = protocol::withdrawal_reason::cancelled;
  std::chrono::nanoseconds undecided{0};  ///< since then, while this rank was looking
  bool holds_name = false;
  tools::range watched;  ///< its negotiation, and then what follows

  /// What the data plane needs of a signature.
  void take(const protocol::signature& sig) noexcept {
    kind = sig.kind;
    flags = sig.flags;
    code = static_cast<reduction_code>(sig.reduction);
    root = sig.root;
    prescale = sig.prescale;
    postscale = sig.postscale;
  }
  [[nodiscard]] std::size_t tensors() const noexcept { return 1 + others.size(); }
  [[nodiscard]] const tensor& operator[](std::size_t i) const noexcept {
    return i == 0 ? first : others[i - 1];
  }
  [[nodiscard]] tensor& operator[](std::size_t i) noexcept {
    return i == 0 ? first : others[i - 1];
  }
  /// The `i`-th, which is the last so far.
  void put(std::size_t i, const tensor& what) {
    if (i == 0) {
      first = what;
    } else {
      others.push_back(what);
    }
  }
  /// As its caller knows it; a literal.
  [[nodiscard]] std::string_view verb() const noexcept {
    if (kind == op_kind::message) return name_of(sends ? op_kind::send : op_kind::recv);
    return name_of(kind);
  }
  void fail(std::exception_ptr why) noexcept {
    if (!error) error = std::move(why);
  }
  void fail(errc what, const std::string& why) {
    fail(std::make_exception_ptr(cohort::error(what, why)));
  }
  device_part& use_device() {
    space = memory_space::device;
    if (!device) device = std::make_unique<device_part>();
    return *device;
  }

 protected:
  explicit task(function run) noexcept : operation(run) {}
  ~task() = default;
};

inline constexpr const char* join_verb = "join";
inline constexpr const char* not_open = ", the coordinator is not open on all ranks";

/// The token of an operation that has ended here before it was decided.
inline constexpr std::uint64_t nobody = 1;
[[nodiscard]] inline task* task_of(std::uint64_t token) noexcept {
  return token == nobody ? nullptr : reinterpret_cast<task*>(token);
}
/// A moment as the protocol counts time.
[[nodiscard]] inline std::uint64_t nanoseconds(clock::time_point when) noexcept {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

}  // namespace cohort::coordination
