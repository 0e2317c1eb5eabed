// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The messages of a batch: an operation each, and one that waits for all of them. Buffers
/// enter this room; requests leave it, and one completion.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/p2p/bodies/common.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::p2p::detail {

class message_list;

/// A borrowed buffer whose type is forgotten.
class erased_buffer {
 public:
  template <class T>
  explicit erased_buffer(buffer_view<T> view) noexcept
      : data_(const_cast<std::remove_const_t<T>*>(view.data)),
        count_(view.count),
        block_(view.block),
        stride_(view.stride),
        bytes_(view.bytes()),
        size_(mpi::wire_size<std::remove_const_t<T>>),
        lay_out_(&lay_out_as<std::remove_const_t<T>>) {}

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Of an element in a message.
  [[nodiscard]] std::size_t wire_size() const noexcept { return size_; }
  /// Its count fits an int. Throws as mpi::layout does.
  [[nodiscard]] mpi::layout lay_out() const { return lay_out_(*this); }

 private:
  template <class T>
  static mpi::layout lay_out_as(const erased_buffer& of) {
    const buffer_view<T> view{static_cast<T*>(of.data_), of.count_, of.block_, of.stride_};
    return mpi::layout(view, mpi::large_count::fold);
  }

  void* data_;
  std::size_t count_;
  std::size_t block_;
  std::ptrdiff_t stride_;
  std::size_t bytes_;
  std::size_t size_;
  mpi::layout (*lay_out_)(const erased_buffer&);
};

/// One message, from when it is added to when the batch is cleared. Not moved while in flight.
class batched_message {
 public:
  batched_message(erased_buffer data, bool sends, int peer, int tag) noexcept
      : data_(data), sends_(sends), way_(peer, tag) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return check_message(state, way_.source, way_.tag, !sends_);
  }
  void explain(failure_text& text) const;
  [[nodiscard]] std::error_code error() const noexcept {
    return posted_ ? posted_->error() : std::error_code();
  }
  [[nodiscard]] cohort::status status() const;

  // With MPI locked:
  /// A new operation for a new run. Its error says what MPI did not take.
  void post(message_list& of, comm::communicator_state& state, bool persistent);
  [[nodiscard]] bool is_pending() const noexcept {
    return posted_ && comm::request_source::pending(*posted_);
  }
  void forget_run() noexcept { posted_.reset(); }
  void free_persistent() noexcept;

  /// From any thread. A send goes on.
  void give_up(comm::request_source& source) {
    if (posted_ && !sends_) source.cancel(*posted_);
  }
  /// Nobody outside of the program touches the buffer any more.
  [[nodiscard]] bool is_settled() const noexcept { return !posted_ || posted_->is_settled(); }

 private:
  /// It ends in the look that finds its request complete, and is delivered to nobody: the batch is.
  class operation final : public comm::request_operation {
   public:
    operation(message_list& of, batched_message& what, int rank) noexcept;
    [[nodiscard]] bool is_settled() const noexcept {
      return settled_.load(std::memory_order_acquire);
    }

   private:
    static bool look_has_found(comm::request_operation* base);
    static void run(progress::operation* base, action what);
    message_list& list_;
    batched_message& message_;
    std::atomic<bool> settled_{false};
  };

  int post(const comm::poster& to, bool persistent);
  [[nodiscard]] const mpi::layout& layout();

  erased_buffer data_;
  bool sends_;
  arrival way_;  // also of a send: its destination and its tag
  std::optional<mpi::layout> layout_;
  MPI_Request persistent_ = MPI_REQUEST_NULL;
  struct posted_slot : std::optional<operation> {
    posted_slot() noexcept {}
    posted_slot(posted_slot&&) noexcept {}  // it is not in flight
    posted_slot& operator=(posted_slot&&) = delete;
    ~posted_slot() = default;
  };
  posted_slot posted_;
};

/// What a batch, the operation that waits for it, and what MPI works on share.
class message_list {
 public:
  explicit message_list(const communicator& on) noexcept : comm_(on) {}
  message_list(const message_list&) = delete;
  message_list& operator=(const message_list&) = delete;
  ~message_list();

  [[nodiscard]] const communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] std::size_t size() const noexcept { return messages_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_in_flight() const noexcept {
    return left_.load(std::memory_order_acquire) != 0;
  }
  /// Throws errc::invalid_argument if it is in flight.
  void require_idle(const char* what) const;
  /// The message `i`. Throws errc::invalid_argument if there is none, or if it is in flight.
  [[nodiscard]] const batched_message& at(std::size_t i, const char* what) const;

  void reserve(std::size_t messages);
  void add(erased_buffer data, bool sends, int peer, int tag);
  void clear();
  void make_persistent();

  /// Without anything that waits for it. What is wrong is told to what waits for it later.
  void start();
  [[nodiscard]] errc check_start(const comm::communicator_base& state) noexcept;
  [[nodiscard]] errc check_finish() const noexcept {
    return waiter_ ? errc::invalid_argument : refused_;
  }
  void explain(failure_text& text) const;
  /// With MPI locked.
  void post_all();
  void wait(comm::poster& post);
  void give_up();
  /// The batch goes, in which `self` was.
  void drop(std::shared_ptr<message_list> self) noexcept;

 private:
  friend class batched_message;
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  /// One message has ended. With MPI locked.
  void count_down();
  /// The first by index. What was given up counts only if nothing else has failed.
  [[nodiscard]] std::size_t first_failed() const noexcept;
  [[nodiscard]] std::error_code error() const noexcept {
    const std::size_t index = first_failed();
    return index == nowhere ? std::error_code() : messages_[index].error();
  }

  communicator comm_;
  std::vector<batched_message> messages_;
  std::size_t bytes_ = 0;
  bool is_persistent_ = false;
  errc refused_ = errc{};  // at the last start, before anything was posted
  std::size_t refused_index_ = nowhere;

  // Changed with MPI locked.
  std::atomic<std::size_t> left_{0};
  std::optional<comm::backend_completion> waiter_;
  std::shared_ptr<message_list> orphan_;  // itself, if the batch has gone before all has ended
};

/// Waits for a batch, and perhaps starts it.
struct batch_body {
  using signature = void(std::error_code);
  static constexpr const char* name = "batch";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  batch_body(std::shared_ptr<message_list> of, bool starts_it) noexcept
      : list(std::move(of)), starts(starts_it) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return starts ? list->check_start(state) : list->check_finish();
  }
  void explain(failure_text& text) const { list->explain(text); }
  [[nodiscard]] std::size_t bytes() const noexcept { return list->bytes(); }
  int post(comm::poster& post) const {
    if (starts) list->post_all();
    list->wait(post);
    return MPI_SUCCESS;
  }
  void give_up() const { list->give_up(); }
  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) const { return {}; }

  std::shared_ptr<message_list> list;
  bool starts;
};

}  // namespace cohort::p2p::detail
