// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What look tasks do together with the other ranks of a communicator.
///
/// All ranks await the same, in the same order. What fails throws `std::system_error` with the verb
/// of the task. MPI writes to what is passed by reference until it is over: it must live in a task
/// that awaits.

#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/progress/look_task.hpp>

#include <concepts>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm::joint {

/// What a look task waits for inside MPI. It frees itself; the task goes with it if nobody will
/// resume that any more.
class operation final : public request_operation {
 public:
  operation(const communicator& over, const progress::look_chain& chain,
            std::coroutine_handle<> whose, std::error_code& why) noexcept
      : request_operation(&run), chain_(chain), waits_(whose), why_(why) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = chain.verb;
    stalls = chain.stalls;
    rank = over.rank();
  }
  void create(const communicator& over, ranks members, std::function<void(mpi::comm)> make) {
    make_ = std::move(make);
    creation_ = std::make_unique<creation>(*over.state(), *this, std::move(members));
    creation_->begin();
  }
  /// Leaves to MPI, for good, what tasks of this owner wait for: other ranks will not join. Not
  /// while completions are being handled. What MPI works on stays, and so do the tasks.
  static void leave_to_mpi(request_source& requests, const void* owner) {
    static auto& left = *new std::vector<operation*>;  // outlives static objects
    const request_source::guard hold(requests);
    requests.leave_to_mpi(&advanced, [owner](request_operation& op) {
      auto& one = static_cast<operation&>(op);
      if (one.chain_.owner != owner) return false;
      if (one.creation_) one.creation_->leave();
      left.push_back(&one);
      return true;
    });
  }
  /// What tasks of this owner wait for now no longer keeps the loop alive. With the source locked.
  static void let_idle(request_source& requests, const void* owner) noexcept {
    requests.for_each(&advanced, [&](request_operation& op) {
      if (static_cast<operation&>(op).chain_.owner == owner) requests.set_idle(op, true);
    });
  }
  /// Nobody waits for what tasks of this owner wait for now, not even the end of the context. With
  /// the source locked.
  static void make_optional(communicator_state& on, const void* owner) noexcept {
    let_idle(on.source, owner);
    on.source.for_each(&advanced, [&](request_operation& op) {
      if (static_cast<operation&>(op).chain_.owner == owner) op.optional_on = &on;
    });
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<operation*>(base);
    if (self->creation_ && self->creation_->goes_on(std::ref(self->make_))) return true;
    self->resume();
    return false;
  }
  static void run(progress::operation* base, action what) {
    const std::unique_ptr<operation> self(static_cast<operation*>(base));
    if (!self->waits_) return;
    if (what == action::destroy) return self->chain_.outermost.destroy();
    self->resume();  // it has failed without a look
  }
  void resume() {
    why_ = error();
    std::exchange(waits_, {}).resume();
  }

  const progress::look_chain& chain_;  // in the outermost frame, as long as somebody waits
  std::coroutine_handle<> waits_;
  std::error_code& why_;
  std::unique_ptr<creation> creation_;  // if it is one
  std::function<void(mpi::comm)> make_;
};

/// What is awaited. `Begin` begins it, with the guard of the source held.
template <class Begin>
class awaited {
 public:
  awaited(communicator over, Begin begin) : over_(std::move(over)), begin_(std::move(begin)) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> whose) {
    const progress::look_chain& chain = *whose.promise().chain;
    verb_ = chain.verb;
    request_source& requests = over_.state()->source;
    {
      const request_source::guard hold(requests);
      if (const errc bad = requests.usable(); bad != errc{}) {
        why_ = bad;
        return false;
      }
      auto op = std::make_unique<operation>(over_, chain, whose, why_);
      if (why_ = begin_(over_, *op); why_) return false;
      op.release();
    }
    requests.engine().started();
    return true;
  }
  void await_resume() const {
    if (why_) throw std::system_error(why_, verb_);
  }

 private:
  communicator over_;
  Begin begin_;
  const char* verb_ = "";
  std::error_code why_{};
};

/// A request of MPI. `post(MPI_Request*)` posts it, with MPI's lock held, and returns MPI's code.
template <class Post>
[[nodiscard]] auto request(communicator over, Post post) {
  auto begin = [post = std::move(post)](const communicator& on, operation& op) -> std::error_code {
    MPI_Request posted = MPI_REQUEST_NULL;
    if (const int code = post(&posted); code != MPI_SUCCESS) return mpi::make_error(code);
    on.state()->source.add(posted, op);
    return {};
  };
  return awaited<decltype(begin)>(std::move(over), std::move(begin));
}

[[nodiscard]] inline auto barrier(communicator over) {
  const MPI_Comm native = over.native();
  return request(std::move(over),
                 [native](MPI_Request* posted) { return MPI_Ibarrier(native, posted); });
}

/// A communicator of the ranks of `over`, or of those `members` of it: `make(mpi::comm)` is called
/// when none of them makes another one, and may call what blocks until all members call it.
template <class Make>
progress::look_task<> create(communicator over, Make make, ranks members = ranks()) {
  std::exception_ptr failed;
  auto begin = [&](const communicator& on, operation& op) -> std::error_code {
    op.create(on, std::move(members), [&](mpi::comm made) {
      try {
        make(std::move(made));
      } catch (...) {
        failed = std::current_exception();
      }
    });
    return {};
  };
  awaited<decltype(begin)> creating(std::move(over), std::move(begin));
  co_await creating;
  if (failed) std::rethrow_exception(failed);
}

/// The same, of what `split(mpi::comm)` makes of it; empty where that is.
template <class Split>
progress::look_task<communicator> create_of(communicator over, Split split) {
  communicator result;
  auto creating = create(over, [&](mpi::comm fresh) {
    communicator reserved;
    on_all_or_none(fresh, [&] { reserved = communicator::reserve(over); });
    mpi::comm data = split(std::move(fresh));
    if (!data) return;
    mpi::comm exchange = data.dup();
    reserved.fill(over, std::move(data), std::move(exchange));
    result = std::move(reserved);
  });
  co_await creating;
  co_return result;
}

// Templates, so that they are compiled only where they are called.

template <std::same_as<communicator> Communicator>
progress::look_task<communicator> duplicate(Communicator over) {
  return create_of(std::move(over), [](mpi::comm fresh) { return fresh; });
}

/// As a communicator's `split`. Empty where `color` is negative.
template <std::same_as<communicator> Communicator>
progress::look_task<communicator> split(Communicator over, int color, int key = 0) {
  return create_of(std::move(over),
                   [color, key](const mpi::comm& fresh) { return fresh.split(color, key); });
}

/// The ranks of a node; those with the same number where one is given.
template <std::same_as<communicator> Communicator>
progress::look_task<communicator> split_nodes(Communicator over, int node) {
  if (node >= 0) return split(std::move(over), node);
  return create_of(std::move(over), [](const mpi::comm& fresh) { return fresh.split_node(); });
}

/// `mine` of each rank, as bytes.
template <class T>
[[nodiscard]] auto all_gather(communicator over, const T& mine, std::vector<T>& all) {
  const MPI_Comm native = over.native();
  return request(std::move(over), [&mine, &all, native](MPI_Request* posted) {
    constexpr auto bytes = static_cast<MPI_Count>(sizeof(T));
    return mpi::post::iallgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, native,
                                 posted);
  });
}

/// As many of each rank as `counts` says.
template <class T>
progress::look_task<> all_gather_v(communicator over, const std::vector<T>& mine,
                                   std::vector<T>& all, const std::vector<int>& counts) {
  std::vector<int> sizes;
  std::vector<int> places;
  int end = 0;
  for (const int count : counts) {
    places.push_back(end);
    sizes.push_back(count * static_cast<int>(sizeof(T)));
    end += sizes.back();
  }
  auto gathering = request(over, [&](MPI_Request* posted) {
    return MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size() * sizeof(T)), MPI_BYTE,
                           all.data(), sizes.data(), places.data(), MPI_BYTE, over.native(),
                           posted);
  });
  co_await gathering;
}

template <class T>
[[nodiscard]] auto broadcast(communicator over, T& value, int root) {
  const MPI_Comm native = over.native();
  return request(std::move(over), [&value, root, native](MPI_Request* posted) {
    return mpi::post::ibcast(&value, static_cast<MPI_Count>(sizeof(T)), MPI_BYTE, root, native,
                             posted);
  });
}

}  // namespace cohort::comm::joint
