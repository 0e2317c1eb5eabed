// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The local part of a conjugate gradient on a box of points, each of which is coupled to its
/// 26 neighbours. Plain loops, and nothing that waits.

#include <array>
#include <cstddef>
#include <vector>

namespace support {

using extents = std::array<int, 3>;

/// Points from `first` up to, and without, `end`.
struct box {
  extents first, end;

  template <class F>  // once for each row of contiguous points: the first two indices
  void each_row(F f) const {
    for (int i = first[0]; i < end[0]; ++i)
      for (int j = first[1]; j < end[1]; ++j) f(i, j);
  }
  std::size_t size() const {
    std::size_t points = 1;
    for (std::size_t d = 0; d < 3; ++d) points *= std::size_t(end[d] - first[d]);
    return points;
  }
};

/// One of the up to 26 ranks beside this one.
struct neighbour {
  int rank;
  box edge, halo;               ///< the points that it needs, and where its own lie here
  std::vector<double> out, in;  ///< what goes there, and what has come
};

/// One rank's part of A x = b, where A has 26 on the diagonal and -1 for each neighbour of a point,
/// and b is 1. Its points are counted from 1, and the halo lies around them. Sums are made in one
/// order, however `apply` was cut into boxes.
class cg_block {
 public:
  /// `points` for each rank of a grid of `ranks`, of which the last dimension runs fastest.
  cg_block(const extents& points, const extents& ranks, int rank)
      : all_{{1, 1, 1}, {points[0] + 1, points[1] + 1, points[2] + 1}}, inner_(all_) {
    const extents here{rank / (ranks[1] * ranks[2]), rank / ranks[2] % ranks[1], rank % ranks[2]};
    for (int beside = 0; beside < 27; ++beside) {
      if (beside == 13) continue;  // this rank
      const extents step{beside / 9 - 1, beside / 3 % 3 - 1, beside % 3 - 1};
      neighbour other{0, all_, all_, {}, {}};
      bool exists = true;
      for (std::size_t d = 0; d < 3; ++d) {
        const int there = here[d] + step[d];
        exists = exists && there >= 0 && there < ranks[d];
        other.rank = other.rank * ranks[d] + there;
        if (step[d] == 0) continue;
        const int last = step[d] < 0 ? 1 : points[d];
        other.edge.first[d] = last;
        other.edge.end[d] = last + 1;
        other.halo.first[d] = last + step[d];
        other.halo.end[d] = last + step[d] + 1;
      }
      if (!exists) continue;
      other.out.resize(other.edge.size());
      other.in = other.out;
      neighbours.push_back(other);
    }
    for (std::size_t d = 0; d < 3; ++d) {
      if (here[d] > 0) rim_.push_back(cut_off(d, inner_.first[d]++));
      if (here[d] < ranks[d] - 1) rim_.push_back(cut_off(d, --inner_.end[d]));
    }
    width_ = std::size_t(points[2]) + 2;
    plane_ = width_ * (std::size_t(points[1]) + 2);
    for (auto* each : {&x_, &r_, &p_, &q_}) each->resize(plane_ * (std::size_t(points[0]) + 2));
  }

  std::vector<neighbour> neighbours;
  const box& all() const { return all_; }
  const box& inner() const { return inner_; }           ///< what needs no halo
  const std::vector<box>& rim() const { return rim_; }  ///< the rest

  /// x = 0 and r = p = b; returns r r. All that is returned is the part of this rank.
  double start();
  void pack();                ///< p at the edges, into what goes to the neighbours
  void unpack();              ///< what has come from them, into the halo of p
  void apply(const box& of);  ///< q = A p
  double p_q() const;
  double descend(double alpha);  ///< x += alpha p and r -= alpha q; returns r r
  void turn(double beta);        ///< p = r + beta p

 private:
  box cut_off(std::size_t dimension, int at) const {
    box face = inner_;
    face.first[dimension] = at;
    face.end[dimension] = at + 1;
    return face;
  }
  std::size_t row(int i, int j) const { return std::size_t(i) * plane_ + std::size_t(j) * width_; }
  template <class F>
  void each_point(const box& of, F f) const {
    of.each_row([&](int i, int j) {
      const std::size_t from = row(i, j);
      for (int k = of.first[2]; k < of.end[2]; ++k) f(from + std::size_t(k));
    });
  }

  box all_, inner_;
  std::vector<box> rim_;
  std::size_t width_, plane_;
  std::vector<double> x_, r_, p_, q_;
};

inline double cg_block::start() {
  double sum = 0;
  for (double& halo : p_) halo = 0;
  each_point(all_, [&](std::size_t at) {
    x_[at] = 0;
    r_[at] = p_[at] = 1;
    sum += 1;
  });
  return sum;
}

inline void cg_block::pack() {
  for (neighbour& other : neighbours) {
    double* to = other.out.data();
    each_point(other.edge, [&](std::size_t at) { *to++ = p_[at]; });
  }
}

inline void cg_block::unpack() {
  for (neighbour& other : neighbours) {
    const double* from = other.in.data();
    each_point(other.halo, [&](std::size_t at) { p_[at] = *from++; });
  }
}

inline void cg_block::apply(const box& of) {
  of.each_row([&](int i, int j) {
    const double* rows[9];
    for (int a = 0; a < 9; ++a) rows[a] = &p_[row(i + a / 3 - 1, j + a % 3 - 1)];
    double* const out = &q_[row(i, j)];
    for (int k = of.first[2]; k < of.end[2]; ++k) {
      double sum = 27 * rows[4][k];
      for (const double* near : rows) sum -= near[k - 1] + near[k] + near[k + 1];
      out[k] = sum;
    }
  });
}

inline double cg_block::p_q() const {
  double sum = 0;
  each_point(all_, [&](std::size_t at) { sum += p_[at] * q_[at]; });
  return sum;
}

inline double cg_block::descend(double alpha) {
  double sum = 0;
  each_point(all_, [&](std::size_t at) {
    x_[at] += alpha * p_[at];
    r_[at] -= alpha * q_[at];
    sum += r_[at] * r_[at];
  });
  return sum;
}

inline void cg_block::turn(double beta) {
  each_point(all_, [&](std::size_t at) { p_[at] = r_[at] + beta * p_[at]; });
}

}  // namespace support
