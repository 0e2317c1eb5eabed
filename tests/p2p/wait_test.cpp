// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Waiting for requests that the library did not make: persistent, one-sided, files, and none.

#include <cohort/comm.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress.hpp>

#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "p2p/support.hpp"

namespace {

using namespace p2p_test;

MPI_Request posted_receive(const communicator& world, int& into, int source, int tag) {
  const cohort::mpi::lock calls;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&into, 1, MPI_INT, source, tag, world.native(), &request);
  return request;
}

void send_now(const communicator& world, int value, int destination, int tag) {
  const cohort::mpi::lock calls;
  MPI_Send(&value, 1, MPI_INT, destination, tag, world.native());
}

}  // namespace

TEST_CASE("a request of one's own is awaited with its status") {
  on_world([](communicator world) -> task {
    int value = -1;
    MPI_Request request = posted_receive(world, value, left_of(world), 3);
    auto waiting = cohort::wait(world, request, cohort::as_future);
    CHECK(request == MPI_REQUEST_NULL);  // the library has it
    send_now(world, world.rank(), right_of(world), 3);
    const auto st = co_await std::move(waiting);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(value == left_of(world));
    CHECK(st.source() == left_of(world));
    CHECK(st.count<int>() == 1);
  });
}

TEST_CASE("a null request is complete at once, with an empty status") {
  on_world([](communicator world) -> task {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto st = co_await cohort::wait(world, request);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(st.source() == cohort::any_source);
    CHECK(st.tag() == cohort::any_tag);
    CHECK(st.bytes() == 0);
  });
}

TEST_CASE("a persistent request comes back inactive, and can be started again") {
  on_world([](communicator world) -> task {
    int value = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Recv_init(&value, 1, MPI_INT, left_of(world), 4, world.native(), &request);
    }
    const MPI_Request mine = request;
    const auto idle = co_await cohort::wait(world, request);  // inactive: complete at once
    CHECK(idle.bytes() == 0);
    CHECK(request == mine);
    for (int i = 0; i < 3; ++i) {
      {
        const cohort::mpi::lock calls;
        MPI_Start(&request);
      }
      auto waiting = cohort::wait(world, request, cohort::as_future);
      CHECK(request == MPI_REQUEST_NULL);
      send_now(world, 100 * i + world.rank(), right_of(world), 4);
      const auto st = co_await std::move(waiting);
      CHECK(request == mine);
      CHECK(st.source() == left_of(world));
      CHECK(value == 100 * i + left_of(world));
    }
    const cohort::mpi::lock calls;
    MPI_Request_free(&request);
  });
}

TEST_CASE("a collective posted by hand is awaited") {
  on_world([](communicator world) -> task {
    std::array<int, 2> sum{1, world.rank()};
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Iallreduce(MPI_IN_PLACE, sum.data(), 2, MPI_INT, MPI_SUM, world.native(), &request);
    }
    co_await cohort::wait(world, request);
    CHECK(sum[0] == world.size());
    CHECK(sum[1] == world.size() * (world.size() - 1) / 2);
  });
}

TEST_CASE("one-sided requests are awaited") {
  on_world([](communicator world) -> task {
    std::vector<int> memory(4, world.rank());
    MPI_Win window = MPI_WIN_NULL;
    std::array<int, 4> got{};
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Win_create(memory.data(), 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, world.native(),
                     &window);
      MPI_Win_lock_all(0, window);
      MPI_Rget(got.data(), 4, MPI_INT, right_of(world), 0, 4, MPI_INT, window, &request);
    }
    co_await cohort::wait(world, request);
    CHECK(got ==
          std::array<int, 4>{right_of(world), right_of(world), right_of(world), right_of(world)});
    {
      const cohort::mpi::lock calls;
      MPI_Ibarrier(world.native(), &request);
    }
    co_await cohort::wait(world, request);  // nobody frees while another reads
    const cohort::mpi::lock calls;
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  });
}

TEST_CASE("requests of files are awaited") {
  on_world([](communicator world) -> task {
    const std::string name =
        (std::filesystem::temp_directory_path() /
         ("cohort-wait-" + std::to_string(::getpid()) + "-" + std::to_string(world.rank())))
            .string();
    const std::array<int, 3> out{world.rank(), 7, -1};
    std::array<int, 3> in{};
    MPI_File file = MPI_FILE_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
      const int rc = MPI_File_open(MPI_COMM_SELF, name.c_str(), mode, MPI_INFO_NULL, &file);
      REQUIRE(rc == MPI_SUCCESS);
      MPI_File_iwrite_at(file, 0, out.data(), 3, MPI_INT, &request);
    }
    const auto written = co_await cohort::wait(world, request);
    CHECK(written.count<int>() == 3);
    {
      const cohort::mpi::lock calls;
      MPI_File_iread_at(file, 0, in.data(), 3, MPI_INT, &request);
    }
    const auto read = co_await cohort::wait(world, request);
    CHECK(read.count<int>() == 3);
    CHECK(in == out);
    const cohort::mpi::lock calls;
    MPI_File_close(&file);
  });
}

TEST_CASE("a request that another library completes is awaited") {
  on_world([](communicator world) -> task {
    const auto query = [](void* tag, MPI_Status* status) {
      MPI_Status_set_elements(status, MPI_INT, 5);
      MPI_Status_set_cancelled(status, 0);
      status->MPI_SOURCE = MPI_UNDEFINED;
      status->MPI_TAG = *static_cast<int*>(tag);
      return MPI_SUCCESS;
    };
    const auto release = [](void*) { return MPI_SUCCESS; };
    const auto cancel = [](void*, int) { return MPI_SUCCESS; };
    int tag = 11;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Request theirs = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Grequest_start(query, release, cancel, &tag, &request);
      theirs = request;
    }
    auto waiting = cohort::wait(world, request, cohort::as_future);
    asio::steady_timer timer(co_await asio::this_coro::executor, 2ms);
    co_await timer.async_wait(asio::use_awaitable);
    CHECK_FALSE(waiting.is_ready());
    {
      const cohort::mpi::lock calls;
      MPI_Grequest_complete(theirs);
    }
    const auto st = co_await std::move(waiting);
    CHECK(st.tag() == 11);
    CHECK(st.count<int>() == 5);
  });
}

TEST_CASE("a cancelled wait lets go: nothing is written back, and MPI finishes alone") {
  on_world([](communicator world) -> task {
    int value = -1;
    MPI_Request request = posted_receive(world, value, left_of(world), 5);
    const auto code = co_await code_of(cohort::with_deadline(cohort::wait(world, request), 3ms));
    CHECK(code == cohort::errc::deadline_exceeded);
    CHECK(request == MPI_REQUEST_NULL);
    co_await meet(world);
    send_now(world, 7, right_of(world), 5);
    while (value != 7) co_await asio::post(asio::use_awaitable);
    asio::steady_timer timer(co_await asio::this_coro::executor, 2ms);
    co_await timer.async_wait(asio::use_awaitable);
    CHECK(request == MPI_REQUEST_NULL);
  });
}

TEST_CASE("a dropped future of wait lets go: nothing is written back") {
  on_world([](communicator world) -> task {
    int value = -1;
    auto request = std::make_unique<MPI_Request>(MPI_REQUEST_NULL);
    MPI_Request again = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Recv_init(&value, 1, MPI_INT, left_of(world), 8, world.native(), request.get());
      MPI_Start(request.get());
      again = *request;
    }
    {
      const auto dropped = cohort::wait(world, *request, cohort::as_future);
    }
    request.reset();
    co_await meet(world);
    send_now(world, 7, right_of(world), 8);
    while (value != 7) co_await asio::post(asio::use_awaitable);
    asio::steady_timer timer(co_await asio::this_coro::executor, 2ms);
    co_await timer.async_wait(asio::use_awaitable);
    const cohort::mpi::lock calls;
    MPI_Request_free(&again);
  });
}

TEST_CASE("a request that was complete already is found so") {
  on_world([](communicator world) -> task {
    const int mine = 9;
    auto sent = cohort::send(world, mine, world.rank(), 6, cohort::as_future);
    int value = -1;
    MPI_Request request = posted_receive(world, value, world.rank(), 6);
    {
      const cohort::mpi::lock calls;
      int done = 0;
      // Bounded: not every MPI makes progress here.
      for (int i = 0; i < 1000 && done == 0; ++i) {
        MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
      }
    }
    const auto st = co_await cohort::wait(world, request);
    CHECK(value == 9);
    CHECK(st.tag() == 6);
    co_await std::move(sent);
  });
}

TEST_CASE("an error of a request reaches who waits for it") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    // The send comes first: Open MPI 4.1 forgets the error of a message to itself otherwise.
    const std::array<int, 3> large{1, 2, 3};
    auto sent = cohort::send(world, large, right_of(world), 7, cohort::as_future);
    int small = 0;
    MPI_Request request = posted_receive(world, small, left_of(world), 7);
    const auto code = co_await code_of(cohort::wait(world, request));
    CHECK(cohort::mpi::error_class(code) == MPI_ERR_TRUNCATE);
    CHECK(world.last_failure().code == code);
    CHECK(logged.contains("wait #"));
    co_await std::move(sent);
  });
}

TEST_CASE("poll moves what is in flight, and delivers nothing itself") {
  on_world([](communicator world) -> task {
    int value = -1;
    auto received = cohort::recv(world, value, left_of(world), 8, cohort::as_future);
    const int mine = 3;
    auto sent = cohort::send(world, mine, right_of(world), 8, cohort::as_future);
    while (value != 3) cohort::poll(world);
    CHECK_FALSE(received.is_ready());
    co_await std::move(received);
    co_await std::move(sent);
    cohort::poll(communicator());  // an empty handle has nothing to look at
  });
}
