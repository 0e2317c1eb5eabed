// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file An operation the engine can finish, one function pointer and an intrusive link; the lists
/// of them; and their recycled memory: after warm-up an operation allocates nothing.

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace cohort::progress {

/// Free lists by size class, one set per thread. Not copied, not shared: every function touches the
/// calling thread only. Asio's own recycling allocator keeps two blocks a thread, which is right
/// for one chain of handlers and wrong for a hundred operations in flight. A block returns to the
/// thread that frees it. Lists are bounded, so memory that a burst needed goes back to the system
/// when the lists are full.
class pool {
 public:
  static constexpr std::size_t granule = 32;  ///< bytes between size classes
  static constexpr std::size_t classes = 32;  ///< blocks above 1 KiB go to `operator new`
  static constexpr std::size_t max_bytes = 4 * 1024 * 1024;  ///< kept per class and thread

  /// Memory of at least `bytes`, aligned for any type of default alignment.
  /// Throws `std::bad_alloc`. Cost: a list pop, or one `operator new` when the list is empty.
  [[nodiscard]] static void* allocate(std::size_t bytes);

  /// Gives back what `allocate(bytes)` returned, on any thread.
  static void deallocate(void* block, std::size_t bytes) noexcept;

 private:
  struct free_block {
    free_block* next;
  };
  struct list {
    free_block* head;
    std::size_t room;  // blocks it still takes; 0 also before its first use and at the thread's end
  };
  enum class state : unsigned char { unused, open, closed };
  struct lists {
    std::array<list, classes> by_class;
    state now;
  };
  /// Empties the lists when the thread ends. Apart from them, so that using them needs no guard.
  struct keeper {
    ~keeper();
  };
  static inline constinit thread_local lists mine_{};

  static void open() {
    static thread_local const keeper at_thread_exit;
    static_cast<void>(at_thread_exit);
    mine_.now = state::open;
    for (std::size_t i = 0; i < classes; ++i) {
      mine_.by_class[i].room = max_bytes / ((i + 1) * granule);
    }
  }
  static void* allocate_new(std::size_t bytes);
  static void give_back_or_keep(void* block, std::size_t index) noexcept;

  static constexpr std::size_t class_of(std::size_t bytes) noexcept {
    return bytes == 0 ? 0 : (bytes - 1) / granule;
  }
};

/// The default associated allocator of every operation, a front of \ref pool. What the pool does
/// not align is `operator new`'s.
template <class T>
class pool_allocator {
 public:
  using value_type = T;

  pool_allocator() noexcept = default;
  template <class U>
  pool_allocator(const pool_allocator<U>&) noexcept {}  // NOLINT: converting, as allocators do

  [[nodiscard]] T* allocate(std::size_t n) {
    if constexpr (alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
      return static_cast<T*>(pool::allocate(n * sizeof(T)));
    } else {
      return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    }
  }
  void deallocate(T* block, std::size_t n) noexcept {
    if constexpr (alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
      pool::deallocate(block, n * sizeof(T));
    } else {
      ::operator delete(block, std::align_val_t(alignof(T)));
    }
  }

  friend bool operator==(pool_allocator, pool_allocator) noexcept { return true; }
};

[[gnu::always_inline]] inline void* pool::allocate(std::size_t bytes) {
  const std::size_t index = class_of(bytes);
  if (index < classes) [[likely]] {
    list& free = mine_.by_class[index];
    if (free_block* block = free.head) [[likely]] {
      free.head = block->next;
      ++free.room;
      return block;
    }
  }
  return allocate_new(bytes);
}

inline void pool::deallocate(void* block, std::size_t bytes) noexcept {
  const std::size_t index = class_of(bytes);
  if (index < classes) [[likely]] {
    list& free = mine_.by_class[index];
    if (free.room != 0) [[likely]] {
      free.head = ::new (block) free_block{free.head};
      --free.room;
      return;
    }
  }
  give_back_or_keep(block, index);
}

inline void* pool::allocate_new(std::size_t bytes) {
  const std::size_t index = class_of(bytes);
  if (mine_.now == state::unused) open();
  return ::operator new(index < classes ? (index + 1) * granule : bytes);
}

inline void pool::give_back_or_keep(void* block, std::size_t index) noexcept {
  if (mine_.now == state::unused && index < classes) {  // a thread that only gives back
    open();
    list& free = mine_.by_class[index];
    free.head = ::new (block) free_block{nullptr};
    --free.room;
    return;
  }
  ::operator delete(block);
}

inline pool::keeper::~keeper() {
  mine_.now = state::closed;
  for (list& free : mine_.by_class) {
    free.room = 0;
    while (free_block* block = free.head) {
      free.head = block->next;
      ::operator delete(block);
    }
  }
}

/// Base of everything that waits in an engine. A source owns it while it is pending; it enters a
/// \ref ready_queue when its outcome is known, and leaves by exactly one of the actions.
class operation {
 public:
  enum class action {
    deliver,       ///< call the handler (on its executor); the operation frees itself before
    deliver_here,  ///< the same on this thread: its executor has brought the operation here
    destroy        ///< free the operation, destroy the handler without calling it
  };
  using function = void (*)(operation*, action);

  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  /// Calls the handler. Whatever it throws passes through; the operation is gone either way.
  void deliver() { run_(this, action::deliver); }
  void deliver_here() { run_(this, action::deliver_here); }
  void destroy() { run_(this, action::destroy); }

  /// Has `flag` set once nothing outside the program (MPI, a device) touches the operation's
  /// buffers any more. `flag` must live as long as the operation.
  void report_settled_to(std::atomic<bool>* flag) noexcept { settled_ = flag; }

  /// Called by the source when that is so, before the operation becomes ready.
  void settle() noexcept {
    if (settled_ != nullptr) settled_->store(true, std::memory_order_release);
  }

 protected:
  explicit operation(function run) noexcept : run_(run) {}
  ~operation() = default;

 private:
  friend class ready_queue;
  function run_;
  operation* next_ = nullptr;
  std::atomic<bool>* settled_ = nullptr;
};

/// First-in first-out list of finished operations. Not synchronised.
class ready_queue {
 public:
  ready_queue() noexcept = default;
  ready_queue(const ready_queue&) = delete;
  ready_queue& operator=(const ready_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

  void push(operation* op) noexcept {
    op->next_ = nullptr;
    *(head_ == nullptr ? &head_ : &tail_->next_) = op;
    tail_ = op;
  }

  [[nodiscard]] operation* pop() noexcept {
    operation* op = head_;
    head_ = op->next_;
    return op;
  }

  /// Moves everything in `other` to the end of this queue.
  void append(ready_queue& other) noexcept {
    if (other.empty()) return;
    *(head_ == nullptr ? &head_ : &tail_->next_) = other.head_;
    tail_ = other.tail_;
    other.head_ = nullptr;
  }

 private:
  operation* head_ = nullptr;
  operation* tail_ = nullptr;  // meaningful only while head_ is not null
};

// ---- deadlines ------------------------------------------------------------------------------

/// Marks, while it lives, cancellations emitted on this thread as those of a deadline that passed.
class deadline_emission {
 public:
  deadline_emission() noexcept { ++depth(); }
  ~deadline_emission() { --depth(); }
  deadline_emission(const deadline_emission&) = delete;
  deadline_emission& operator=(const deadline_emission&) = delete;

 private:
  friend bool emitting_deadline() noexcept;
  static int& depth() noexcept {
    static constinit thread_local int value = 0;
    return value;
  }
};

/// True inside the emission of a deadline's cancellation.
[[nodiscard]] inline bool emitting_deadline() noexcept { return deadline_emission::depth() > 0; }

}  // namespace cohort::progress
