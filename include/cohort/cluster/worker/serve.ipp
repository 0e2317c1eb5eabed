// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of cluster/serve.hpp.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/worker/way_to_manager.hpp>
#include <cohort/cluster/worker/worker.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/shm/backend.hpp>

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace cohort::cluster {

namespace detail {

/// Runs the context until the coroutine has ended, and throws what it throws.
template <class Any = void>
void run_until_done(asio::io_context& io, asio::awaitable<void> work) {
  struct ending {
    bool done = false;
    std::exception_ptr failed;
  };
  const auto end = std::make_shared<ending>();
  run_beside(io, std::move(work), [end](std::exception_ptr failed) {
    end->failed = std::move(failed);
    end->done = true;
  });
  while (!end->done) {
    if (io.run_one() == 0) io.restart();
  }
  if (io.stopped()) io.restart();  // out of work: whoever runs it next has some
  if (end->failed) std::rethrow_exception(end->failed);
}

/// Until the other side has closed the connection.
inline void wait_for_end(int connection, std::chrono::milliseconds bound) {
  pollfd end{connection, POLLRDHUP, 0};
  static_cast<void>(::poll(&end, 1, static_cast<int>(bound.count())));
}

/// A launched worker, until the manager says that no more calls come.
template <class Any = void>
void serve_launched(worker_start start, int& argc, char**& argv) {
  std::unique_ptr<environment> mpi;
  int last_sign = -1;
  bool alone = false;
  bool with_all = false;
  {
    asio::io_context io;
    worker self(io, std::move(start));
    run_until_done(io, self.join());
    mpi = std::make_unique<environment>(argc, argv);
    {
      worker_place where;
      communicator world(io);
      where.ids = world.size();
      where.control = communicator(io, world.native());
      where.calls = {world.rank(), world, std::move(world), {}};
      where.transport =
          std::make_shared<mpi_transport>(where.control, std::numeric_limits<std::size_t>::max());
      self.listen(std::move(where));
      run_until_done(io, self.serve());
    }
    last_sign = self.last_sign();
    alone = self.leaves_mpi_as_it_is();
    with_all = self.leaves_with_all();
    // MPI goes on with its collective, in a frame that stays: there is nothing to wait for.
    if (self.has_set_aside()) {
      asio::use_service<progress::engine>(io).leave(std::chrono::nanoseconds(0));
    }
  }
  if (alone) {
    static_cast<void>(mpi.release());  // MPI_Finalize would wait for who is lost
  } else {
    mpi.reset();
  }
  std::fflush(stdout);
  if (with_all && last_sign >= 0) wait_for_end(last_sign, std::chrono::seconds(10));
  if (last_sign >= 0) ::close(last_sign);
}

template <class Any = void>
asio::awaitable<void> serve_adopted(communicator world) {
  asio::io_context& io = world.get_executor().context();
  const invitation invited = co_await accept_invitation(world);
  const adopted_communicators made = co_await make_communicators(world);
  worker_place where;
  where.calls = {world.rank(), made.workers, made.everyone, {}};
  where.ids = world.size();
  where.control = made.control;
  where.transport =
      std::make_shared<mpi_transport>(made.control, std::numeric_limits<std::size_t>::max());
  worker_start start;
  start.adopted = true;
  start.capture = invited.capture;
  start.token = invited.token;
  start.managers = parse_endpoints(invited.addresses);
  if (invited.over_mpi) start.control = where.transport->to(0);
  const auto transport = where.transport;
  const auto control = start.control;
  worker self(io, std::move(start));
  self.listen(std::move(where));
  std::exception_ptr failed;
  try {
    co_await self.join();
    co_await self.serve();
  } catch (...) {
    failed = std::current_exception();
  }
  if (failed && control) control->close();
  co_await transport->stop(std::chrono::seconds(1));
  if (failed) std::rethrow_exception(failed);
}

}  // namespace detail

template <class Any>
bool serve(int& argc, char**& argv) {
  auto start = worker_start::take_from_environment();
  if (!start) return false;
  detail::serve_launched(*std::move(start), argc, argv);
  return true;
}

template <class Any>
void serve(std::string_view endpoints, std::string_view token) {
  worker_start start = worker_start::from_texts(endpoints, token, "serve: ");
  int argc = 0;
  char** argv = nullptr;
  detail::serve_launched(std::move(start), argc, argv);
}

template <class Any>
void serve(const communicator& world) {
  if (world.rank() == 0) {
    throw error(errc::invalid_argument, "serve: rank 0 is the manager, it calls adopt");
  }
  if (world.state()->engine.is_in_handler()) {
    throw error(errc::invalid_argument, "serve: it runs the loop, so it cannot be called inside");
  }
  detail::run_until_done(world.get_executor().context(), detail::serve_adopted(world));
}

}  // namespace cohort::cluster
