// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The hook through which a communicator lets something else than MPI do its collectives.

#include <cohort/comm/collective_call.hpp>
#include <cohort/comm/options.hpp>
#include <cohort/comm/switch_point.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/progress/engine.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace cohort::comm {

class communicator_state;
class late_operation;
class request_operation;

/// Data that lies in many places: it is written where a backend asks for it, and results are taken
/// from there, so that what travels together is copied once each way. Offsets are bytes from the
/// beginning; those of `lay` ascend without gaps, those of `take` too.
class scattered_data {
 public:
  virtual void lay(std::size_t offset, std::span<std::byte> to) noexcept = 0;
  virtual void take(std::size_t offset, std::span<const std::byte> from) noexcept = 0;

 protected:
  ~scattered_data() = default;
};

/// Ends one operation that a backend has taken, from any thread, exactly once.
class backend_completion {
 public:
  /// Of none: not to be called.
  backend_completion() noexcept = default;
  backend_completion(progress::engine& engine, request_operation& op) noexcept
      : engine_(&engine), op_(&op) {}

  void operator()(std::error_code error) const;
  /// The same from inside a look of the engine, without locks of the backend: an operation of
  /// several parts then goes on at once, also where nothing is delivered. False if it goes on.
  bool in_look(std::error_code error) const;
  [[nodiscard]] bool is_of(const request_operation& op) const noexcept { return op_ == &op; }

 private:
  progress::engine* engine_ = nullptr;
  request_operation* op_ = nullptr;
};

/// What has become of a call that a backend was to do at once.
enum class backend_run : std::uint8_t {
  not_begun,  ///< nothing
  begun,      ///< it goes on, as if it had been started, and completes the operation
  ended       ///< the caller has the result, and no operation is completed
};

/// Does collectives in place of MPI.
///
/// `takes` decides, once per operation and rank. It must decide by the values of the call that MPI
/// requires to be equal on all ranks, and by options agreed when the backend was made, by nothing
/// else: ranks that choose differently hang. `start` returns at once, keeps the context alive until
/// it has called the completion, and never calls it before it returns. Both may be called in a
/// look, with the locks of MPI's source held.
template <class Backend>
concept collective_backend =
    requires(Backend& backend, const collective_call& call, backend_completion done) {
      { backend.takes(call) } noexcept -> std::same_as<bool>;
      { backend.start(call, done) };
    };

/// A backend behind virtual functions, so that a communicator can carry any.
class any_backend {
 public:
  virtual ~any_backend() = default;
  [[nodiscard]] virtual bool takes(const collective_call& call) noexcept = 0;
  virtual void start(const collective_call& call, backend_completion done) = 0;
  static constexpr std::size_t most_bytes_at_once = 16 * 1024;
  /// Begins a call of at most `most_bytes_at_once` that it takes, and looks for its end for some
  /// microseconds, for a thread that blocks in it; only where it has nothing else to do
  /// (`backend_run run(call, late_operation& op, std::error_code& error)`). `error` is set only if
  /// the call has ended, and if it has not, the backend completes `op.get()` later. Throws only
  /// before it has begun. With the locks of MPI's source held.
  [[nodiscard]] virtual backend_run run(const collective_call&, late_operation&, std::error_code&) {
    return backend_run::not_begun;
  }
  [[nodiscard]] virtual bool takes_scattered() const noexcept { return false; }
  /// What ranks compare where they are to have the same: its `name()`, of which 8 letters count,
  /// and which is empty where it takes nothing; "unnamed" where it has none.
  [[nodiscard]] virtual std::string_view name() const noexcept { return "unnamed"; }
  /// The operation has been given up: touch its memory no more, and never complete it. False if it
  /// has been completed, or if the backend cannot (it needs `bool forget(const
  /// request_operation&)`).
  virtual bool forget(const request_operation&) noexcept { return false; }
  /// The communicator goes. True if MPI still has messages on it that the backend has sent there:
  /// then it must be kept (`bool leave() noexcept`).
  virtual bool leave() noexcept { return false; }
};

template <collective_backend Backend>
class backend_holder final : public any_backend {
 public:
  explicit backend_holder(Backend backend) : backend_(std::move(backend)) {}
  bool takes(const collective_call& call) noexcept override { return backend_.takes(call); }
  void start(const collective_call& call, backend_completion done) override {
    backend_.start(call, done);
  }
  [[nodiscard]] backend_run run(const collective_call& call, late_operation& op,
                                std::error_code& error) override {
    if constexpr (requires { backend_.run(call, op, error); }) {
      return backend_.run(call, op, error);
    } else {
      return any_backend::run(call, op, error);
    }
  }
  [[nodiscard]] bool takes_scattered() const noexcept override {
    if constexpr (requires { backend_.takes_scattered(); }) {
      return backend_.takes_scattered();
    } else {
      return false;
    }
  }
  [[nodiscard]] std::string_view name() const noexcept override {
    if constexpr (requires { backend_.name(); }) {
      return backend_.name();
    } else {
      return any_backend::name();
    }
  }
  bool forget(const request_operation& op) noexcept override {
    if constexpr (requires { backend_.forget(op); }) {
      return backend_.forget(op);
    } else {
      return false;
    }
  }
  bool leave() noexcept override {
    if constexpr (requires { backend_.leave(); }) {
      return backend_.leave();
    } else {
      return false;
    }
  }

 private:
  Backend backend_;
};

/// Makes a backend together with the other ranks of a communicator. The steps come one after the
/// other on all ranks; none may block.
class backend_maker {
 public:
  /// Tells the other ranks where to find what the first has begun.
  using address = std::array<std::byte, 64>;

  virtual ~backend_maker() = default;
  /// On the lowest rank of each node. Throws std::exception with the reason where it cannot.
  virtual address begin() = 0;
  /// On the others of the node, if that could. Throws as `begin`.
  virtual void join(const address& of) = 0;
  /// What is used if all ranks can. Throws as `begin`.
  [[nodiscard]] virtual std::shared_ptr<any_backend> end() = 0;
  /// Memory of zeros that the ranks of this node share beside what the backend needs, as much as
  /// was asked for, from `end` on for as long as what that has made.
  [[nodiscard]] virtual std::span<std::byte> beside() noexcept = 0;
  /// All ranks have come to `end`.
  virtual void all_have_joined() noexcept = 0;
};

/// What is to be opened.
struct backend_wish {
  std::uint32_t orders = 1;      ///< see collective_call
  std::size_t bytes_beside = 0;  ///< a multiple of 64
  std::size_t memory = 0;        ///< communicator_options::shared_memory
};

/// Makes the maker for this rank of a communicator. Where its ranks are on several nodes, the
/// backend sends messages on `beside`, which has the same ranks, with tags from `backend_tag` on.
using new_backend_maker = std::unique_ptr<backend_maker> (*)(const communicator_state& over,
                                                             MPI_Comm beside,
                                                             const backend_wish& wish);
/// Of Adasum are those before it, and the making of communicators has the last.
inline constexpr int backend_tag = (1 << 14) + 2;
/// How a communicator opens a backend itself: `opening_with` (comm/backend_opening.hpp). It comes
/// from the file that makes the communicator, and goes on to those that are made from it.
struct backend_opening {
  new_backend_maker make;
  /// Begins it, with the guard of the communicator held.
  void (*begin)(communicator_state& of);
  /// Does it in the constructor, over nodes.
  void (*open_over_nodes)(communicator_state& of);
};
/// True where the program includes verbs that bring device memory to MPI: then ranks whose data lie
/// on the host may not go another way, and no backend is chosen.
inline std::atomic<bool> has_staged_verbs{false};

/// What this rank has of a backend that it opens together with the others.
struct backend_offer {
  std::unique_ptr<backend_maker> maker;
  std::shared_ptr<any_backend> made;  ///< null where it cannot
  int first = 0;                      ///< the lowest rank of this node
  bool is_there = false;              ///< that can
  std::array<char, 256> why{};        ///< it cannot
};

/// How far a communicator is in choosing its backend itself.
enum class backend_choosing : std::uint8_t {
  ahead,      ///< it begins with one of the next collectives
  under_way,  ///< this rank waits for the others
  over        ///< or it never begins
};

}  // namespace cohort::comm

// Brings the body of the completion.
#include <cohort/comm/communicator_state.hpp>
