// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Recycled memory for operations: after warm-up an operation allocates nothing.
///
/// Free lists by size class, one set per thread. Asio's own recycling allocator keeps two blocks a
/// thread, which is right for one chain of handlers and wrong for a hundred operations in flight.
/// A block returns to the thread that frees it. Lists are bounded, so memory that a burst needed
/// goes back to the system when the lists are full.

#include <array>
#include <cstddef>
#include <new>

namespace cohort::progress {

/// Per-thread free lists. Not copied, not shared: every function touches the calling thread only.
class pool {
 public:
  static constexpr std::size_t granule = 64;  ///< bytes between size classes
  static constexpr std::size_t classes = 16;  ///< blocks above 1 KiB go to `operator new`
  static constexpr std::size_t max_bytes = 4 * 1024 * 1024;  ///< kept per class and thread

  /// Memory of at least `bytes`, aligned for any type of default alignment.
  /// Throws `std::bad_alloc`. Cost: a list pop, or one `operator new` when the list is empty.
  [[nodiscard]] static void* allocate(std::size_t bytes);

  /// Gives back what `allocate(bytes)` returned, on any thread.
  static void deallocate(void* block, std::size_t bytes) noexcept;

 private:
  struct node {
    node* next;
  };
  struct list {
    node* head;
    std::size_t room;  // blocks it still takes; 0 also before its first use and at the thread's end
  };
  enum class stage : unsigned char { unused, open, closed };
  struct lists {
    std::array<list, classes> by_class;
    stage now;
  };
  /// Empties the lists when the thread ends. Apart from them, so that using them needs no guard.
  struct keeper {
    ~keeper();
  };
  static inline constinit thread_local lists mine_{};

  static void open() {
    static thread_local const keeper at_thread_exit;
    static_cast<void>(at_thread_exit);
    mine_.now = stage::open;
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
    if (node* block = free.head) [[likely]] {
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
      free.head = ::new (block) node{free.head};
      --free.room;
      return;
    }
  }
  give_back_or_keep(block, index);
}

inline void* pool::allocate_new(std::size_t bytes) {
  const std::size_t index = class_of(bytes);
  if (mine_.now == stage::unused) open();
  return ::operator new(index < classes ? (index + 1) * granule : bytes);
}

inline void pool::give_back_or_keep(void* block, std::size_t index) noexcept {
  if (mine_.now == stage::unused && index < classes) {  // a thread that only gives back
    open();
    list& free = mine_.by_class[index];
    free.head = ::new (block) node{nullptr};
    --free.room;
    return;
  }
  ::operator delete(block);
}

inline pool::keeper::~keeper() {
  mine_.now = stage::closed;
  for (list& free : mine_.by_class) {
    free.room = 0;
    while (node* block = free.head) {
      free.head = block->next;
      ::operator delete(block);
    }
  }
}

}  // namespace cohort::progress
