// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Coroutines whose steps follow one another inside the looks of the engine.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/creation.hpp>
#include <cohort/comm/request_source.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/nccl/source.hpp>

#include <coroutine>
#include <exception>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

// What several ranks must do together, such as making a communicator, cannot depend on handlers:
// they are no longer run when a context ends, but the engine still looks then, for a bounded time,
// and the other ranks wait meanwhile. So such a coroutine is resumed by the look that finds what it
// waits for, with the locks of MPI and of the issuing source held. A step must not block, but for
// what `create` calls.

namespace cohort::nccl::detail {

/// Begins when it is awaited.
template <class T>
class [[nodiscard]] steps {
 public:
  struct promise_type {
    std::optional<T> value;
    std::exception_ptr failed;
    std::coroutine_handle<> caller;

    struct to_caller {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(
          std::coroutine_handle<promise_type> ended) const noexcept {
        return ended.promise().caller;
      }
      void await_resume() const noexcept {}
    };
    steps get_return_object() {
      return steps(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    to_caller final_suspend() const noexcept { return {}; }
    template <class From>
    void return_value(From&& from) {
      value.emplace(std::forward<From>(from));
    }
    void unhandled_exception() noexcept { failed = std::current_exception(); }
  };

  steps(steps&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  steps& operator=(steps&&) = delete;
  ~steps() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> whose) const noexcept {
    frame_.promise().caller = whose;
    return frame_;
  }
  T await_resume() const {
    if (frame_.promise().failed) std::rethrow_exception(frame_.promise().failed);
    return std::move(*frame_.promise().value);
  }

 private:
  explicit steps(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

/// What the steps of one coroutine wait for.
class stepper {
 public:
  stepper(issue_source& issuing, std::coroutine_handle<> root)
      : source(issuing),
        requests_(asio::use_service<comm::request_source>(issuing.engine().context())),
        root_(root) {}
  stepper(const stepper&) = delete;

  /// A condition, asked for at each look with the lock of the source held. What is `bounded` by
  /// itself is seen through also when the engine ends; otherwise that throws operation_aborted.
  [[nodiscard]] auto until(std::function<bool()> holds, bool bounded = false) {
    return until_step{*this, std::move(holds), bounded};
  }

  /// A request of MPI. `post(MPI_Request*)` posts it, with MPI's lock held, and returns MPI's code.
  template <class Post>
  [[nodiscard]] auto request(const char* what, Post post) {
    return request_step<Post>{*this, what, std::move(post)};
  }

  /// A communicator of the ranks of `over`: `make(mpi::comm)` is called when none of them makes
  /// another one, and may call what blocks until all members call it.
  template <class Make>
  [[nodiscard]] auto create(cohort::communicator over, Make make) {
    return creation_step{*this, std::move(over), std::move(make)};
  }

  /// Leaves to MPI, for good, what steps of this owner have requested: others will not join. Not
  /// while completions are being handled. What MPI works on stays, and so does the coroutine.
  static void leave_to_mpi(comm::request_source& requests, const void* owner) {
    static auto& left = *new std::vector<requested*>;  // outlives static objects
    const comm::request_source::guard hold(requests);
    requests.leave_to_mpi(&requested::advanced, [owner](comm::request_operation& op) {
      auto& one = static_cast<requested&>(op);
      if (one.owner != owner) return false;
      if (one.creation) one.creation->leave();
      left.push_back(&one);
      return true;
    });
  }

  issue_source& source;
  const void* owner = nullptr;  ///< for that

 private:
  /// One request. It frees itself; the coroutine goes with it if nobody will resume it any more.
  class requested final : public comm::request_operation {
   public:
    explicit requested(std::coroutine_handle<> root) noexcept
        : request_operation(&run), root_(root) {
      advance_ = &advanced;
      advances_failed_ = true;
    }
    std::coroutine_handle<> waits;
    std::error_code* why = nullptr;
    const void* owner = nullptr;
    std::unique_ptr<comm::creation> creation;  // if it is one
    std::function<void(mpi::comm)> make;

    static bool advanced(request_operation* base) {
      auto* self = static_cast<requested*>(base);
      if (self->creation && self->creation->goes_on(std::ref(self->make))) return true;
      self->resume();
      return false;
    }

   private:
    static void run(operation* base, action what) {
      const std::unique_ptr<requested> self(static_cast<requested*>(base));
      if (!self->waits) return;
      if (what == action::destroy) return self->root_.destroy();
      self->resume();
    }
    void resume() {
      *why = error();
      std::exchange(waits, {}).resume();
    }
    std::coroutine_handle<> root_;
  };

  class condition final : public issue_source::condition_base {
   public:
    explicit condition(std::coroutine_handle<> root) noexcept : condition_base(&run), root_(root) {
      in_lap = [](condition_base* base) { static_cast<condition*>(base)->deliver(); };
    }
    std::coroutine_handle<> waits;
    std::error_code* why = nullptr;

   private:
    static void run(operation* base, action what) {
      const std::unique_ptr<condition> self(static_cast<condition*>(base));
      if (what == action::destroy) return self->root_.destroy();
      *self->why = self->error;
      self->waits.resume();
    }
    std::coroutine_handle<> root_;
  };

  struct until_step {
    stepper& by;
    std::function<bool()> holds;
    bool bounded;
    std::error_code why{};

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> whose) {
      auto op = std::make_unique<condition>(by.root_);
      op->waits = whose;
      op->why = &why;
      op->holds = std::move(holds);
      op->bounded = bounded;
      by.source.wait_for(*op.release());
    }
    void await_resume() const {
      if (why) throw std::system_error(why);
    }
  };

  template <class Post>
  struct request_step {
    stepper& by;
    const char* what;
    Post post;
    std::error_code why{};

    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> whose) {
      comm::request_source& requests = by.requests_;
      auto op = std::make_unique<requested>(by.root_);
      {
        const comm::request_source::guard hold(requests);
        if (const errc bad = requests.usable(); bad != errc{}) {
          why = bad;
          return false;
        }
        MPI_Request request = MPI_REQUEST_NULL;
        if (const int code = post(&request); code != MPI_SUCCESS) {
          why = mpi::make_error(code);
          return false;
        }
        op->verb = what;
        op->waits = whose;
        op->why = &why;
        op->owner = by.owner;
        requests.add(request, *op.release());
      }
      requests.engine().started();
      return true;
    }
    void await_resume() const {
      if (why) throw std::system_error(why, what);
    }
  };

  struct creation_step {
    stepper& by;
    cohort::communicator over;
    std::function<void(mpi::comm)> make;
    std::error_code why{};
    std::exception_ptr failed{};

    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> whose) {
      comm::request_source& requests = by.requests_;
      auto op = std::make_unique<requested>(by.root_);
      {
        const comm::request_source::guard hold(requests);
        if (const errc bad = requests.usable(); bad != errc{}) {
          why = bad;
          return false;
        }
        op->verb = "MPI_Comm_create_group";
        op->waits = whose;
        op->why = &why;
        op->owner = by.owner;
        op->make = [this](mpi::comm made) {
          try {
            make(std::move(made));
          } catch (...) {
            failed = std::current_exception();
          }
        };
        op->creation = std::make_unique<comm::creation>(*over.state(), *op);
        op.release()->creation->begin();
      }
      requests.engine().started();
      return true;
    }
    void await_resume() const {
      if (failed) std::rethrow_exception(failed);
      if (why) throw std::system_error(why, "MPI_Comm_create_group");
    }
  };

  comm::request_source& requests_;
  std::coroutine_handle<> root_;
};

/// The outermost coroutine, which nobody awaits.
struct stepping {
  struct promise_type {
    stepping get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
  /// Its own handle.
  struct itself {
    std::coroutine_handle<> found{};
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> whose) noexcept {
      found = whose;
      return false;
    }
    std::coroutine_handle<> await_resume() const noexcept { return found; }
  };
};

/// `make(stepper&)` gives the steps, of which the first is taken at the next look. Then
/// `done(exception_ptr, result)`, in the look that ends the last one.
template <class T, class Make, class Done>
stepping take_steps(issue_source& source, Make make, Done done) {
  stepping::itself mine;
  const std::coroutine_handle<> root = co_await mine;
  stepper by(source, root);
  std::exception_ptr why;
  std::optional<T> result;
  try {
    auto next_look = by.until([] { return true; }, true);
    co_await next_look;
    steps<T> work = make(by);
    result.emplace(co_await work);
  } catch (...) {
    why = std::current_exception();
  }
  try {
    done(std::move(why), result ? std::move(*result) : T());
  } catch (const std::exception& failed) {
    log::write(log::level::error, failed.what());
  }
}

}  // namespace cohort::nccl::detail

#endif
