// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Matrices of Eigen in verbs: borrowed, const, owned, with strides, of fixed size and in ranges.
#include "checked.hpp"

#include <cohort/adapters/eigen.hpp>

#include <Eigen/Dense>

#include <concepts>
#include <span>
#include <utility>
#include <vector>

namespace {

using checked::expect;
using checked::task;
using cohort::communicator;
using cohort::op::sum;
using Eigen::ArrayXXd;
using Eigen::Map;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;
using row_major = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

using cohort::input_buffer;
using cohort::output_buffer;
using cohort::owned_buffer;
using cohort::readable_buffer;
using cohort::writable_buffer;

// Matrices, vectors and arrays own: lvalues are borrowed, rvalues moved in.
static_assert(writable_buffer<MatrixXd&> && !writable_buffer<const MatrixXd&>);
static_assert(readable_buffer<const MatrixXd&> && readable_buffer<const Vector3d&>);
static_assert(owned_buffer<MatrixXd> && owned_buffer<ArrayXXd> && owned_buffer<Vector3d>);
static_assert(!readable_buffer<MatrixXd> && !input_buffer<const MatrixXd>);

// What refers into them may be an rvalue, and is as const as that.
using column = decltype(std::declval<MatrixXd&>().col(0));
using const_column = decltype(std::declval<const MatrixXd&>().col(0));
static_assert(writable_buffer<column> && !owned_buffer<column>);
static_assert(readable_buffer<const_column> && !writable_buffer<const_column>);
static_assert(writable_buffer<Map<VectorXd>> && !writable_buffer<Map<const VectorXd>>);
static_assert(writable_buffer<Eigen::Ref<VectorXd>>);
static_assert(readable_buffer<Map<const VectorXd>>);
static_assert(writable_buffer<decltype(std::declval<MatrixXd&>().transpose())>);

// A Ref to what is const may hold the value of an expression.
static_assert(readable_buffer<const Eigen::Ref<const VectorXd>&>);
static_assert(!input_buffer<Eigen::Ref<const VectorXd>>);

// Expressions have no memory, and matrices of what does not travel are none.
static_assert(!input_buffer<decltype(std::declval<MatrixXd&>() + std::declval<MatrixXd&>())>);
static_assert(!input_buffer<decltype(MatrixXd::Zero(2, 2))>);
static_assert(!input_buffer<Eigen::Matrix<int*, 2, 2>&>);

// Ranges of matrices of fixed size, and of no others.
using points = std::vector<Vector3d>;
static_assert(writable_buffer<points&> && !writable_buffer<const points&> && owned_buffer<points>);
static_assert(writable_buffer<std::span<Vector3d>> && !owned_buffer<std::span<Vector3d>>);
static_assert(readable_buffer<std::span<const Vector3d>> && !readable_buffer<points>);
static_assert(std::same_as<cohort::element_of_t<points&>, double>);
static_assert(!input_buffer<std::vector<VectorXd>&>);

// A class of one's own that is a matrix.
struct state : MatrixXd {
  using MatrixXd::MatrixXd;
};
static_assert(writable_buffer<state&> && owned_buffer<state>);

MatrixXd numbers(Eigen::Index rows, Eigen::Index columns, double first = 0) {
  MatrixXd result(rows, columns);
  for (Eigen::Index i = 0; i < result.size(); ++i) result(i) = first + static_cast<double>(i);
  return result;
}

task reductions(communicator world) {
  const double ranks = world.size();
  MatrixXd m = numbers(3, 4);
  co_await cohort::all_reduce(world, m, sum);
  expect(m == ranks * numbers(3, 4));

  // A column is contiguous, a row and a block have strides; what lies between stays.
  m = numbers(3, 4);
  MatrixXd expected = m;
  co_await cohort::all_reduce(world, m.col(1), sum);
  expected.col(1) *= ranks;
  co_await cohort::all_reduce(world, m.row(2), sum);
  expected.row(2) *= ranks;
  co_await cohort::all_reduce(world, m.block(0, 1, 2, 2), sum);
  expected.block(0, 1, 2, 2) *= ranks;
  co_await cohort::all_reduce(world, m.array(), sum);
  expected *= ranks;
  expect(m == expected);

  // Out of place, from const.
  const MatrixXd from = numbers(2, 3);
  row_major to(3, 2);  // as it lies in memory, this is the transpose
  co_await cohort::all_reduce(world, from, to, sum);
  expect(to == ranks * from.transpose());
  VectorXd small(3);
  co_await cohort::all_reduce(world, from.row(1), small, sum);
  expect(small == ranks * from.row(1).transpose());

  // Owned, of both kinds.
  MatrixXd owned = numbers(50, 2);
  const double* const place = owned.data();
  owned = co_await cohort::all_reduce(world, std::move(owned), sum);
  expect(owned.data() == place);
  expect(owned == ranks * numbers(50, 2));
  const Vector3d fixed = co_await cohort::all_reduce(world, Vector3d(1, 2, 3), sum);
  expect(fixed == ranks * Vector3d(1, 2, 3));

  state mine(2, 2);
  mine.setOnes();
  co_await cohort::all_reduce(world, mine, sum);
  expect(mine == MatrixXd::Constant(2, 2, ranks));

  // Memory of others.
  std::vector<double> plain{1, 2, 3, 4, 5, 6};
  co_await cohort::all_reduce(world, Map<VectorXd, 0, Eigen::InnerStride<2>>(plain.data(), 3), sum);
  expect(plain == std::vector<double>{ranks, 2, 3 * ranks, 4, 5 * ranks, 6});
  Eigen::Ref<VectorXd> reference = small;
  reference.setOnes();
  co_await cohort::all_reduce(world, reference, sum);
  expect(small == VectorXd::Constant(3, ranks));

  const VectorXd none;
  VectorXd nothing;
  co_await cohort::all_reduce(world, none, nothing, sum);
}

task movement(communicator world) {
  const double rank = world.rank();
  MatrixXd m = numbers(3, 4, 100 * rank);
  MatrixXd expected = m;
  co_await cohort::broadcast(world, m.row(1), 0);
  expected.row(1) = numbers(3, 4).row(1);
  expect(m == expected);

  // Each rank's vector becomes a column.
  const VectorXd mine = VectorXd::Constant(5, rank);
  MatrixXd all(5, world.size());
  co_await cohort::all_gather(world, mine, all);
  for (int i = 0; i < world.size(); ++i) expect(all.col(i) == VectorXd::Constant(5, i));

  // Of fixed size, in a range.
  points cloud(4, Vector3d(rank, 1, 2));
  co_await cohort::broadcast(world, cloud, 0);
  expect(cloud == points(4, Vector3d(0, 1, 2)));
  cloud = co_await cohort::all_reduce(world, std::move(cloud), sum);
  expect(cloud[3] == world.size() * Vector3d(0, 1, 2));
  points none;
  co_await cohort::broadcast(world, none, 0);
}

task messages(communicator world) {
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  const MatrixXd m = numbers(3, 4, 100.0 * world.rank());
  const MatrixXd other = numbers(3, 4, 100.0 * left);

  auto sent = cohort::send(world, m.row(1), right, 1, cohort::as_future);
  VectorXd row(4);
  co_await cohort::recv(world, row, left, 1);
  expect(row == other.row(1).transpose());
  co_await std::move(sent);

  MatrixXd into = MatrixXd::Zero(3, 4);
  sent = cohort::send(world, m.leftCols(1), right, 2, cohort::as_future);
  co_await cohort::recv(world, into.row(2).head(3), left, 2);
  expect(into.row(2).head(3) == other.col(0).transpose());
  expect(into.row(1).isZero());
  co_await std::move(sent);

  // An owner comes back, and one of unknown size is made.
  auto twice = cohort::send(world, MatrixXd(m), right, 3, cohort::as_future);
  auto [status, owned] = co_await cohort::recv(world, VectorXd(12), left, 3);
  expect(status.count<double>() == 12 && owned == other.reshaped());
  expect((co_await std::move(twice)) == m);
  sent = cohort::send(world, m, right, 4, cohort::as_future);
  auto [made, found] = co_await cohort::recv<VectorXd>(world, left, 4);
  expect(made == other.reshaped() && found.count<double>() == 12);
  co_await std::move(sent);

  // Two strides, neither of them 1.
  std::vector<double> plain(40);
  using both = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  bool refused = false;
  try {
    co_await cohort::send(world, Map<MatrixXd, 0, both>(plain.data(), 3, 3, both(11, 2)), right, 5);
  } catch (const cohort::error& failed) {
    refused = failed.code() == cohort::errc::not_supported;
  }
  expect(refused);
}

task everything(communicator world) {
  co_await reductions(world);
  co_await movement(world);
  co_await messages(world);
}

}  // namespace

int main(int argc, char** argv) { return checked::run(argc, argv, everything); }
