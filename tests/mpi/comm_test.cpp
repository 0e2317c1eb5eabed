// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Communicators, groups and topologies.

#include <cohort/core/ranks.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/mpi/topology.hpp>

#include <vector>

#include "support/catch.hpp"

namespace {

namespace mpi = cohort::mpi;
using cohort::ranks;

mpi::comm_ref world() { return mpi::comm_ref::world(); }

int sum_over(const mpi::comm_ref& communicator, int value) {
  int sum = 0;
  mpi::check(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, communicator.native()),
             "MPI_Allreduce");
  return sum;
}

int compared(MPI_Comm a, MPI_Comm b) {
  int result = MPI_UNEQUAL;
  MPI_Comm_compare(a, b, &result);
  return result;
}

}  // namespace

TEST_CASE("a borrowed communicator knows its rank and size") {
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(world().rank() == rank);
  CHECK(world().size() == size);
  CHECK(mpi::comm_ref::self().size() == 1);
  CHECK_FALSE(world().is_inter());
}

TEST_CASE("a null communicator is refused") {
  CHECK_THROWS_AS(mpi::comm_ref(MPI_COMM_NULL), cohort::error);
  CHECK_THROWS_AS(mpi::comm::from(MPI_COMM_NULL), cohort::error);
  CHECK_FALSE(mpi::comm_ref());
  CHECK_FALSE(mpi::comm::adopt(MPI_COMM_NULL));
}

TEST_CASE("a duplicate is congruent, private, and returns errors") {
  const mpi::comm copy = mpi::comm::from(MPI_COMM_WORLD);
  CHECK(compared(copy.native(), MPI_COMM_WORLD) == MPI_CONGRUENT);
  CHECK(sum_over(copy, 1) == world().size());
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(copy.native(), &handler);
  CHECK(handler == MPI_ERRORS_RETURN);
}

TEST_CASE("owners move and release") {
  mpi::comm first = world().dup();
  const MPI_Comm native = first.native();
  mpi::comm second = std::move(first);
  CHECK_FALSE(first);
  CHECK(first.size() == 0);
  CHECK(second.native() == native);
  first = std::move(second);
  CHECK(first.native() == native);
  CHECK(first.borrow().size() == world().size());
  MPI_Comm raw = first.release();
  CHECK_FALSE(first);
  MPI_Comm_free(&raw);
}

TEST_CASE("a communicator that is kept can be used, and is not freed in the end") {
  int key = MPI_KEYVAL_INVALID;
  const auto when_freed = [](MPI_Comm, int, void* value, void*) {
    ++*static_cast<int*>(value);
    return static_cast<int>(MPI_SUCCESS);
  };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, when_freed, &key, nullptr);
  static int kept_freed = 0;  // MPI_Finalize frees it
  int other_freed = 0;
  mpi::comm first = world().dup();
  MPI_Comm_set_attr(first.native(), key, &kept_freed);
  first.keep();
  mpi::comm second = std::move(first);
  first = world().dup();
  MPI_Comm_set_attr(first.native(), key, &other_freed);
  CHECK(second.dup().size() == world().size());
  second = mpi::comm();
  CHECK_FALSE(second);
  CHECK(kept_freed == 0);
  first.reset();
  CHECK(other_freed == 1);
  first = world().dup();  // an owner may have another later
  MPI_Comm_set_attr(first.native(), key, &other_freed);
  first.keep();
  MPI_Comm raw = first.release();
  first = world().dup();
  MPI_Comm_set_attr(first.native(), key, &other_freed);
  first.reset();
  CHECK(other_freed == 2);
  MPI_Comm_free(&raw);
  CHECK(other_freed == 3);
  MPI_Comm_free_keyval(&key);
}

TEST_CASE("splitting groups by color and orders by key") {
  const mpi::comm half = world().split(world().rank() % 2, -world().rank());
  const int members = (world().size() + 1 - world().rank() % 2) / 2;
  CHECK(half.size() == members);
  CHECK(half.rank() == members - 1 - world().rank() / 2);
  const mpi::comm alone = world().split(world().rank() == 0 ? 0 : -1);
  CHECK(static_cast<bool>(alone) == (world().rank() == 0));
}

TEST_CASE("the ranks of one node find each other") {
  const mpi::comm node = world().split_node();
  CHECK(node.size() >= 1);
  CHECK(sum_over(node, 1) == node.size());
}

TEST_CASE("the largest tag is at least what the standard guarantees") {
  CHECK(mpi::max_tag() >= 32767);
}

TEST_CASE("groups include, exclude and combine members") {
  const mpi::group all = world().group();
  const int n = world().size();
  CHECK(all.size() == n);
  CHECK(all.rank() == world().rank());
  CHECK(mpi::group().size() == 0);
  CHECK(mpi::group().rank() == -1);

  const mpi::group first = all.include(ranks{0});
  const mpi::group rest = all.exclude(ranks{0});
  CHECK(first.size() == 1);
  CHECK(rest.size() == n - 1);
  CHECK(first.unite(rest) == all);
  CHECK(rest.unite(first).similar(all));
  CHECK(first.intersect(rest).size() == 0);
  CHECK(all.subtract(first) == rest);
  CHECK_THROWS_AS(all.include(ranks(std::vector<int>{n})), cohort::error);
}

TEST_CASE("ranks translate between groups, and strangers are -1") {
  const mpi::group all = world().group();
  const mpi::group rest = all.exclude(ranks{0});
  const auto translated = all.translate(ranks::all(world().size()), rest);
  for (int rank = 0; rank < world().size(); ++rank) {
    CHECK(translated[static_cast<std::size_t>(rank)] == rank - 1);
  }
}

TEST_CASE("a communicator of a group is made by its members alone") {
  const mpi::group even = world().group().include(ranks::stride(0, world().size(), 2));
  const mpi::comm members = world().create(even, 3);
  REQUIRE(static_cast<bool>(members) == (world().rank() % 2 == 0));
  if (members) {
    CHECK(members.rank() == world().rank() / 2);
    CHECK(sum_over(members, 1) == even.size());
  }
}

TEST_CASE("a ring is a periodic grid of one dimension") {
  const int n = world().size();
  const mpi::comm ring = mpi::cartesian({n}, {true}).create(world());
  const mpi::grid where(ring);
  CHECK(where.dims() == std::vector<int>{n});
  CHECK(where.periodic() == std::vector<bool>{true});
  CHECK(where.coordinates() == std::vector<int>{ring.rank()});
  const mpi::shift partners = where.shifted(0);
  CHECK(partners.source == (ring.rank() + n - 1) % n);
  CHECK(partners.destination == (ring.rank() + 1) % n);
  CHECK(where.rank_at({n}) == 0);
  CHECK(where.rank_at({-1}) == n - 1);
}

TEST_CASE("a grid can be described without lists, and joined in one dimension") {
  const auto shape = mpi::cartesian::of(1, world().size()).wrap(1);
  CHECK(shape.dims() == std::vector<int>{1, world().size()});
  CHECK(shape.periodic() == std::vector<bool>{false, true});
  CHECK(mpi::cartesian::of(2, 2).wrap().periodic() == std::vector<bool>{true, true});
  CHECK_THROWS_AS(mpi::cartesian::of(2).wrap(1), cohort::error);
  CHECK(mpi::grid(shape.create(world())).periodic() == shape.periodic());
}

TEST_CASE("an open grid has nobody beyond its ends") {
  const mpi::comm line = mpi::cartesian({world().size()}).create(world());
  const mpi::grid where(line);
  const mpi::shift partners = where.shifted(0);
  CHECK((partners.source == cohort::no_rank) == (line.rank() == 0));
  CHECK((partners.destination == cohort::no_rank) == (line.rank() == line.size() - 1));
  CHECK_THROWS_AS(where.rank_at({world().size()}), cohort::error);
  CHECK_THROWS_AS(where.rank_at({0, 0}), cohort::error);
  CHECK_THROWS_AS(where.shifted(1), cohort::error);
  CHECK_THROWS_AS(where.coordinates_of(-1), cohort::error);
}

TEST_CASE("a balanced grid uses every process, and coordinates and ranks agree") {
  const auto shape = mpi::cartesian::balanced(world().size(), 2, true);
  CHECK(shape.size() == world().size());
  const mpi::comm communicator = shape.create(world());
  const mpi::grid where(communicator);
  for (int rank = 0; rank < communicator.size(); ++rank) {
    CHECK(where.rank_at(where.coordinates_of(rank)) == rank);
  }
  CHECK(mpi::neighbors_of(communicator).sources.size() == 4);
}

TEST_CASE("grids that make no sense are refused before MPI is asked") {
  CHECK_THROWS_AS(mpi::cartesian({0}), cohort::error);
  CHECK_THROWS_AS(mpi::cartesian::balanced(0, 2), cohort::error);
  CHECK_THROWS_AS(mpi::cartesian({world().size() + 1}).create(world()), cohort::error);
  CHECK_THROWS_AS(mpi::grid(world()), cohort::error);
  CHECK_THROWS_AS(mpi::neighbors_of(world()), cohort::error);
}

TEST_CASE("ranks beyond a small grid get an empty communicator") {
  const mpi::comm one = mpi::cartesian({1}).create(world());
  CHECK(static_cast<bool>(one) == (world().rank() == 0));
}

TEST_CASE("a graph keeps the order of its edges, also without any") {
  const int n = world().size();
  const int next = (world().rank() + 1) % n;
  const int previous = (world().rank() + n - 1) % n;
  const mpi::comm graph = mpi::dist_graph({previous}, {next}).weights({2}, {2}).create(world());
  const auto around = mpi::neighbors_of(graph);
  CHECK(around.sources == std::vector<int>{previous});
  CHECK(around.destinations == std::vector<int>{next});

  const mpi::comm lonely = mpi::dist_graph({}, {}).weights({}, {}).create(world());
  CHECK(mpi::neighbors_of(lonely).sources.empty());
  CHECK_THROWS_AS(mpi::dist_graph({n}, {}).create(world()), cohort::error);
  CHECK_THROWS_AS(mpi::dist_graph({0}, {}).weights({}, {}), cohort::error);
}

TEST_CASE("a duplicate keeps the topology") {
  const mpi::comm ring = mpi::cartesian({world().size()}, {true}).create(world());
  const mpi::comm copy = ring.dup();
  CHECK(mpi::grid(copy).dims() == mpi::grid(ring).dims());
}
