// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Requests of MPI that have no verb of their own are awaited by `cohort::wait`: those of a file and
// those of one-sided communication. Each rank advances its part of a field, writes a checkpoint of
// it while it computes on, and looks into the memory of its right neighbour for the edge there. At
// the end it reads the part of its left neighbour from the file.

#include <cohort/cohort.hpp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using field = std::vector<double>;

/// Throws what MPI says.
void check(int return_code) { cohort::mpi::check(return_code, "checkpoint"); }

/// The edge of this rank's part where its neighbours may read it.
class edge_window {
 public:
  explicit edge_window(const cohort::communicator& world) {
    const cohort::mpi::lock calls;
    // MPICH 4.0 reads the wrong rank's memory where a window has less than a cache line.
    constexpr MPI_Aint bytes = 64;
    check(MPI_Win_allocate(bytes, sizeof(double), MPI_INFO_NULL, world.native(), &edge_, &window_));
    check(MPI_Win_lock_all(0, window_));
  }
  ~edge_window() {
    const cohort::mpi::lock calls;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  edge_window(const edge_window&) = delete;
  edge_window& operator=(const edge_window&) = delete;

  void publish(double value) {
    const cohort::mpi::lock calls;
    *edge_ = value;
    check(MPI_Win_sync(window_));
  }
  /// Completes when the value of `rank` is here.
  asio::awaitable<double> read(cohort::communicator world, int rank) {
    double value = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;  // around each call of your own
      check(MPI_Rget(&value, 1, MPI_DOUBLE, rank, 0, 1, MPI_DOUBLE, window_, &request));
    }
    co_await cohort::wait(world, request);
    co_return value;
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  double* edge_ = nullptr;
};

/// A file with the parts of all ranks, one after the other.
class checkpoint_file {
 public:
  checkpoint_file(const cohort::communicator& world, const std::string& name) {
    const cohort::mpi::lock calls;
    const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    check(MPI_File_open(world.native(), name.c_str(), mode, MPI_INFO_NULL, &file_));
  }
  ~checkpoint_file() {
    const cohort::mpi::lock calls;
    MPI_File_close(&file_);
  }
  checkpoint_file(const checkpoint_file&) = delete;
  checkpoint_file& operator=(const checkpoint_file&) = delete;

  /// `part` must live, and stay as it is, until the future is ready.
  cohort::future<cohort::status> write(const cohort::communicator& world, const field& part) {
    return start(world, part.size(), world.rank(), [&](MPI_Offset at, int count) {
      return MPI_File_iwrite_at(file_, at, part.data(), count, MPI_DOUBLE, &request_);
    });
  }
  cohort::future<cohort::status> read(const cohort::communicator& world, int rank, field& into) {
    return start(world, into.size(), rank, [&](MPI_Offset at, int count) {
      return MPI_File_iread_at(file_, at, into.data(), count, MPI_DOUBLE, &request_);
    });
  }

 private:
  template <class Call>
  cohort::future<cohort::status> start(const cohort::communicator& world, std::size_t count,
                                       int rank, Call call) {
    {
      const cohort::mpi::lock calls;
      const auto at = static_cast<MPI_Offset>(count * sizeof(double)) * rank;
      check(call(at, static_cast<int>(count)));
    }
    return cohort::wait(world, request_, cohort::as_future);
  }

  MPI_File file_ = MPI_FILE_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;  // one at a time
};

/// Whether all was right. The window and the file are closed here, which all ranks do together: so
/// nothing is thrown before.
asio::awaitable<bool> exchange(cohort::communicator world, const std::string& name) {
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  field part(10'000, world.rank());
  edge_window edges(world);
  checkpoint_file file(world, name);

  const field written = part;  // what the file gets, while `part` goes on
  auto saved = file.write(world, written);
  for (double& each : part) each += 0.5;
  edges.publish(part.front());
  co_await cohort::barrier(world);  // all have published theirs
  const double beyond = co_await edges.read(world, right);
  co_await std::move(saved);
  co_await cohort::barrier(world);  // all have written theirs

  field of_left(part.size());
  const cohort::status st = co_await file.read(world, left, of_left);
  co_return beyond == right + 0.5 && st.count<double>() == part.size() &&
      of_left == field(part.size(), left);
}

asio::awaitable<void> work(cohort::communicator world, int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "checkpoint.data";
  const bool is_right = co_await exchange(world, name);
  int good = is_right ? 1 : 0;
  co_await cohort::all_reduce(world, good, cohort::op::min);
  if (good == 0) throw std::runtime_error("an edge or a checkpoint is wrong");
  if (world.rank() == 0) std::printf("passed on %d ranks\n", world.size());
}

int main(int argc, char** argv) { return cohort::run(argc, argv, work); }
