// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a coordinator needs of something that does elected operations on device memory, and a
/// tensor of such an operation, on the host or on a device.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator_state.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/mpi/element_kernels.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Where a tensor lies in memory that all ranks have.
struct arena_place {
  std::uint64_t arena = 0;  ///< its number; 0: the tensor lies elsewhere
  std::uint64_t offset = 0;
  bool padded = false;  ///< nobody uses what is behind it, up to the next multiple of 64 bytes
};

/// Contiguous, `count` elements as the operation's signature says (of a scatter and a
/// reduce_scatter: of the whole, of which `part_of_rank` is a rank's part). Those of a bundle may
/// have different elements. On a device, elements without a name that are not reduced come as
/// bytes.
struct tensor {
  /// Null: neutral elements, or nothing to read on this rank. Equal to `out` in place, and where a
  /// root sends.
  const void* in = nullptr;
  void* out = nullptr;  ///< null: what comes is not wanted here
  std::size_t count = 0;
  const mpi::element_kernels* kernels = nullptr;  ///< of what travels; null: there is no data
  MPI_Op operation = MPI_OP_NULL;                 ///< MPI's, of a reduction; null where it has none
  /// Set where `in` and `out` are of another type than what travels: this rank's own affair.
  const mpi::wire_kernels* wire = nullptr;
  arena_place place;  ///< on a device, in place; the same on all ranks if `all_bring`

  // Known when the operation is elected.
  double prescale = 1;
  double postscale = 1;
  std::int64_t divisor = 1;  ///< of an average: the ranks that it divides by
  bool all_bring = true;     ///< no rank brings neutral elements
  /// The operation is rounded to 16 bits for its way, and this is one of the types of 16 bits. Then
  /// `prescale` comes before the rounding, `postscale` and the division after the reduction, on
  /// every rank, whether or not this one has `wire`.
  bool rounded = false;

  [[nodiscard]] std::size_t size() const noexcept { return kernels->size; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count * kernels->size; }
  /// Where an element lies in the memory of the caller that lies at `offset` in what travels.
  [[nodiscard]] std::size_t place_of(std::size_t offset) const noexcept {
    return wire == nullptr ? offset : offset / kernels->size * wire->size;
  }
};

/// A buffer as it was when its operation was submitted.
struct device_buffer {
  const char* field = "";  ///< for reports
  const void* data = nullptr;
  std::size_t bytes = 0;
  memory_location where;              ///< with the stream that writes it
  std::shared_ptr<const void> lease;  ///< keeps the memory; null: borrowed
};

/// What a backend has noted of a submission: events behind what the streams had queued by then, and
/// leases on the memory.
class device_mark {
 public:
  device_mark(const device_mark&) = delete;
  device_mark& operator=(const device_mark&) = delete;
  virtual ~device_mark() = default;

 protected:
  device_mark() noexcept {}
};

/// What is done with a call: it runs, or it is captured and does nothing yet, or what has been
/// captured of it runs once more.
enum class device_use : std::uint8_t { run, capture, replay };

/// Of a backend: what it has captured of an operation. It keeps the memory of that operation. What
/// it has on the device ends with the backend's communicator, if it lives longer.
class device_graph {
 public:
  device_graph(const device_graph&) = delete;
  device_graph& operator=(const device_graph&) = delete;
  virtual ~device_graph() = default;

 protected:
  device_graph() noexcept {}
};

/// Of a backend: memory that it has made in one elected operation on all ranks, as much on each. It
/// stays as long as somebody has a share of this, operations included.
class device_arena {
 public:
  device_arena(const device_arena&) = delete;
  device_arena& operator=(const device_arena&) = delete;
  virtual ~device_arena() = default;

  std::uint64_t number = 0;  ///< the same on all ranks: the log count of its making
  void* memory = nullptr;    ///< null: it could not be made on this rank
  std::size_t bytes = 0;
  int device = -1;
  bool registered = false;  ///< operations may run in it without copies
  std::error_code failed;   ///< why there is none here
  std::string text;         ///< the same in words
  /// Operations run in it from now on: all ranks have it.
  virtual void use() = 0;

 protected:
  device_arena() noexcept {}
};

/// Of a backend: the arenas that it has made.
class device_arenas {
 public:
  device_arenas(const device_arenas&) = delete;
  device_arenas& operator=(const device_arenas&) = delete;
  virtual ~device_arenas() = default;

  /// Where a buffer lies in an arena that operations run in. One in memory of an arena that has no
  /// lease gets a share of that memory. Called at submission, from any thread.
  [[nodiscard]] virtual arena_place locate(device_buffer& of) const = 0;

 protected:
  device_arenas() noexcept {}
};

/// One elected operation, or a pack of them. The same on all ranks but for pointers, marks, `ends`
/// and the sizes that a verb lets differ. It lives until its completion.
struct device_call {
  op_kind kind = op_kind::barrier;
  reduction_code reduction = reduction_code::no_reduction;
  int root = 0;  ///< in the set; of a message the other rank, to send to where `in` is set
  const char* verb = "";
  std::uint64_t sequence = 0;  ///< log count
  std::uint32_t set = 0;       ///< number of the set that it is an operation of
  std::vector<tensor> tensors;
  /// Of the submissions of this rank. A backend keeps them for as long as a device may use the
  /// memory, also beyond the completion.
  std::vector<std::shared_ptr<device_mark>> marks;
  /// all_gather and all_to_all: bytes for and from each rank. Known when `sized` is true; then the
  /// outputs are set too. (An all_gather sends every rank the same.) With several tensors an
  /// all_gather has as many numbers from each rank, and an all_to_all is one of equal blocks of
  /// each tensor.
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
  bool sized = true;
  until ends = until::complete;  ///< enqueued only if all submissions of this rank want that
  device_use use = device_use::run;
  std::shared_ptr<device_graph> graph;  ///< where it is captured, or what is replayed
  std::size_t reserves = 0;             ///< of an arena: its bytes
  std::shared_ptr<device_arena> arena;  ///< is made; set by the backend before the completion
};

/// What a device does for an operation, or for a pack of them, one after the other: copying into
/// the buffer for packs, and what else comes before; the operation itself; copying out, and what
/// else comes after. A replay of what was captured is one stage, the second.
enum class device_stage : std::uint8_t { pack, reduce, unpack };

/// When it did that.
struct device_span {
  device_stage what = device_stage::reduce;
  const char* verb = "";  ///< as in the call, with what follows
  std::uint64_t sequence = 0;
  std::uint32_t set = 0;
  std::size_t tensors = 0;
  std::size_t bytes = 0;
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
};

/// Does elected operations on device memory. All functions are called with the lock of the engine's
/// request source held, but for `mark`; none of them blocks, and none calls a completion before it
/// returns, unless through `backend_completion::operator()`.
class device_backend {
 public:
  device_backend(const device_backend&) = delete;
  device_backend& operator=(const device_backend&) = delete;
  virtual ~device_backend() = default;

  /// For the timeline and for errors: "nccl".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Adds what must be equal on all ranks, with names for the message if it is not.
  virtual void facts(std::vector<std::pair<std::string, std::uint64_t>>& all) const = 0;
  /// The coordinator is being made: from here on, which is at the same place in the program on all
  /// ranks, the device is its own until `close(0)`.
  virtual void attach(const communicator& parent) { static_cast<void>(parent); }
  /// Makes what operations of a set need. Collective over `over`, which has the ranks of the set
  /// and is used by nobody else until `close`; the operations of the set may be started before it
  /// is done, and then wait. `done` is called once, from the engine without a lock or inside one of
  /// its looks, after a `fail` too. It goes on in looks where no handler is run any more, for the
  /// other ranks wait for it. An exception is the same on all ranks where that can be.
  virtual void open(std::uint32_t set, const communicator& over,
                    std::function<void(std::exception_ptr)> done) = 0;
  /// Takes the place of the opening of a set among the operations: those that are started from here
  /// on wait for it. `open` or `close` of that set follows.
  virtual void reserve(std::uint32_t set) { static_cast<void>(set); }
  /// Why it cannot do such an operation, by what is equal on all ranks; empty: it can. Reductions
  /// that devices do not have (`devices_have`) are refused by nobody else.
  [[nodiscard]] virtual std::string refuses(const device_call& what) const = 0;
  /// Whether it does operations with `tensor::rounded` and `wire`.
  [[nodiscard]] virtual bool casts() const noexcept { return false; }
  /// Where an operation can be captured. `name` is for reports. Null: this backend captures
  /// nothing. Called at submission, from any thread. Throws std::system_error.
  [[nodiscard]] virtual std::shared_ptr<device_graph> make_graph(const std::string& name) {
    static_cast<void>(name);
    return nullptr;
  }
  /// What it makes by operations of the kind `arena_add`. Null: it can do none of these. Called at
  /// submission, from any thread.
  [[nodiscard]] virtual const device_arenas* arenas() const noexcept { return nullptr; }
  /// Marks what the buffers' streams, and `on` if that is one, have queued so far. Called at
  /// submission, from any thread, also before `open`. Throws std::system_error,
  /// error(errc::wrong_device).
  [[nodiscard]] virtual std::shared_ptr<device_mark> mark(std::span<const device_buffer> buffers,
                                                          const stream_ref& on) = 0;
  /// A stream in whose order memory for results is taken after the election: one where nothing
  /// waits. None: the stream of the operation's input, with all that it has got since.
  [[nodiscard]] virtual stream_ref results() { return {}; }
  /// Adds a buffer that was made after the election, for a result, before the sizes are known to
  /// the backend.
  virtual void add_result(device_mark& to, const device_buffer& made) = 0;
  /// Operations are launched in the order of these calls, over all sets. If not `what.sized`, those
  /// behind it wait until `sizes_known`.
  virtual void start(device_call& what, backend_completion done) = 0;
  /// Sets `what.sized`.
  virtual void sizes_known(device_call& what) = 0;
  /// A copy in memory of the backend, in the order of the buffer's stream: for an operation whose
  /// awaiter does not wait any longer. `mark` is that of the submission, and then that of the copy.
  [[nodiscard]] virtual device_buffer keep(const device_buffer& of,
                                           std::shared_ptr<device_mark>& mark) = 0;
  /// A deadline has passed over an operation that has been started. False: ask again later, for it
  /// has not come so far that anything can be done.
  virtual bool deadline_passed(device_call& what) = 0;
  /// Everything that was started ends with an error, here and, by the backend's own means, on the
  /// other ranks; so does an opening. Nothing is started any more. Called at most once.
  virtual void fail(std::error_code why, const std::string& text) = 0;
  /// Touch the memory of this operation no more than the device does already, and never complete
  /// it. False if it has been completed.
  virtual bool forget(const request_operation& op) = 0;
  /// For the timeline: what tells its device apart.
  [[nodiscard]] virtual std::string device_name() const { return {}; }
  /// From now on times are noted, or not any more. What was started before goes without.
  virtual void record_times(bool yes) { static_cast<void>(yes); }
  /// Hands out, once each, the stages that were noted and are over. Does not wait for the device.
  virtual void take_times(const std::function<void(const device_span&)>& visit) {
    static_cast<void>(visit);
  }
  /// Nothing of this set is started any more. `close(0)`: of none.
  virtual void close(std::uint32_t set) = 0;

 protected:
  device_backend() noexcept {}
};

/// What a coordinator is given: a value that makes the backend of one coordinator.
template <class Backend>
concept device_backend_maker = requires(const Backend& maker) {
  { maker.make_device_backend() } -> std::convertible_to<std::shared_ptr<device_backend>>;
};

}  // namespace cohort::comm
