// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Datatypes and layouts: what is sent arrives, whatever the type, the gaps and the size.

#include <cohort/core/buffer.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/request.hpp>

#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/wrapped.hpp"

namespace test {

struct particle {
  double position[3];
  char kind;
  friend bool operator==(const particle& a, const particle& b) {
    return std::memcmp(a.position, b.position, sizeof a.position) == 0 && a.kind == b.kind;
  }
};
enum class color : short { red, green };

}  // namespace test

namespace {

namespace mpi = cohort::mpi;
using cohort::view_of;
using namespace test;

/// Sends from one view to another on this rank and returns the status of the receive.
template <class From, class To>
cohort::status transfer(From from, To to) {
  const mpi::layout out(from);
  const mpi::layout in(to);
  MPI_Status status;
  mpi::check(MPI_Sendrecv(out.data(), out.int_count(), out.type(), 0, 7, in.data(), in.int_count(),
                          in.type(), 0, 7, MPI_COMM_SELF, &status),
             "MPI_Sendrecv");
  return cohort::status(status);
}

template <class T>
void round_trip(std::vector<T> values) {
  auto received = values;
  if (!values.empty()) {
    std::memset(static_cast<void*>(received.data()), 0, received.size() * sizeof(T));
  }
  const cohort::status status = transfer(view_of(values), view_of(received));
  CHECK(received == values);
  CHECK(status.count<T>() == values.size());
  CHECK(status.bytes() == values.size() * mpi::wire_size<T>);
  CHECK(status.source() == 0);
  CHECK(status.tag() == 7);
  CHECK_FALSE(status.cancelled());
}

int size_of(MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return size;
}

MPI_Aint extent_of(MPI_Datatype type) { return mpi::detail::extent_of(type); }

template <class T>
void check_size() {
  CHECK(static_cast<std::size_t>(size_of(mpi::datatype_of<T>())) == mpi::wire_size<T>);
  CHECK(extent_of(mpi::datatype_of<T>()) == static_cast<MPI_Aint>(sizeof(T)));
}

}  // namespace

TEST_CASE("predefined types are those that a C program would name") {
  CHECK(mpi::datatype_of<char>() == MPI_CHAR);
  CHECK(mpi::datatype_of<int>() == MPI_INT);
  CHECK(mpi::datatype_of<unsigned long>() == MPI_UNSIGNED_LONG);
  CHECK(mpi::datatype_of<long long>() == MPI_LONG_LONG);
  CHECK(mpi::datatype_of<double>() == MPI_DOUBLE);
  CHECK(mpi::datatype_of<std::complex<float>>() == MPI_C_FLOAT_COMPLEX);
  CHECK(mpi::datatype_of<cohort::located<double>>() == MPI_DOUBLE_INT);
  CHECK(mpi::datatype_of<metres>() == MPI_DOUBLE);
  CHECK(mpi::datatype_of<color>() == MPI_SHORT);
  CHECK(mpi::datatype_of<std::byte>() == MPI_BYTE);
}

TEST_CASE("char reduces as a signed or unsigned integer") {
  CHECK(mpi::reduction_type_of<char>() ==
        (std::is_signed_v<char> ? MPI_SIGNED_CHAR : MPI_UNSIGNED_CHAR));
  CHECK(mpi::reduction_type_of<double>() == MPI_DOUBLE);
}

TEST_CASE("every datatype has the size and extent of its element") {
  check_size<signed char>();
  check_size<wchar_t>();
  check_size<char32_t>();
  check_size<bool>();
  check_size<long double>();
  check_size<std::complex<long double>>();
  check_size<cohort::f16>();
  check_size<particle>();
  check_size<stamp>();
  check_size<std::array<int, 3>>();
  check_size<std::array<particle, 2>>();
  check_size<std::array<std::array<cohort::bf16, 3>, 2>>();
  check_size<cohort::located<float>>();
  check_size<cohort::located<double>>();
  check_size<cohort::located<long double>>();
  check_size<cohort::located<short>>();
  check_size<cohort::located<int>>();
  check_size<cohort::located<long>>();
  check_size<cohort::located<unsigned>>();
}

TEST_CASE("derived types are made once") {
  CHECK(mpi::datatype_of<particle>() == mpi::datatype_of<particle>());
  CHECK(mpi::datatype_of<particle>() != mpi::datatype_of<stamp>());
}

TEST_CASE("values of every kind of element arrive") {
  round_trip<char>({'a', 'b'});
  round_trip<std::uint64_t>({1, ~std::uint64_t{0}});
  round_trip<float>({1.5F, -2.0F, 3.25F});
  round_trip<std::complex<double>>({{1, 2}, {3, 4}});
  round_trip<cohort::f16>({cohort::f16(1.5F), cohort::f16(-2.0F)});
  round_trip<cohort::bf16>({cohort::bf16(1.5F)});
  round_trip<std::array<int, 3>>({{1, 2, 3}, {4, 5, 6}});
  round_trip<particle>({{{1, 2, 3}, 'x'}, {{4, 5, 6}, 'y'}});
  round_trip<color>({color::green, color::red});
  round_trip<metres>({metres(3), metres(4)});
  round_trip<stamp>({stamp(1, 2)});
  round_trip<cohort::located<double>>({{2.5, 3}, {1.5, 4}});
  round_trip<cohort::located<unsigned>>({{2, 3}});
}

TEST_CASE("empty buffers arrive empty") {
  round_trip<double>({});
  round_trip<particle>({});
}

TEST_CASE("strided views are sent and received in place") {
  std::vector<int> matrix(20);
  for (int i = 0; i < 20; ++i) matrix[static_cast<std::size_t>(i)] = i;
  std::vector<int> target(20, -1);
  const cohort::strided_view<int> column(matrix.data() + 1, 4, 2, 5);
  const cohort::strided_view<int> rows(target.data(), 2, 4, 6);
  const auto status = transfer(column.view(), rows.view());
  CHECK(status.count<int>() == 8);
  CHECK(std::vector<int>(target.begin(), target.begin() + 11) ==
        std::vector<int>{1, 2, 6, 7, -1, -1, 11, 12, 16, 17, -1});
}

TEST_CASE("a strided view of aggregates keeps the gaps untouched") {
  std::vector<particle> from(6, particle{{1, 2, 3}, 'a'});
  std::vector<particle> to(6, particle{{0, 0, 0}, '-'});
  transfer(cohort::strided_view<particle>(from.data(), 3, 1, 2).view(),
           cohort::strided_view<particle>(to.data(), 3, 1, 2).view());
  CHECK(to[0] == from[0]);
  CHECK(to[1].kind == '-');
  CHECK(to[4] == from[4]);
  CHECK(to[5].kind == '-');
}

TEST_CASE("a contiguous layout needs no type of its own, a strided one does") {
  std::vector<int> data(12);
  const mpi::layout plain(view_of(data));
  CHECK_FALSE(plain.derived());
  CHECK(plain.count() == 12);
  CHECK(plain.fits_int());
  mpi::layout gaps(cohort::strided_view<int>(data.data(), 3, 1, 4).view());
  CHECK(gaps.derived());
  CHECK(gaps.count() == 1);
  CHECK(size_of(gaps.type()) == 12);
  const mpi::datatype kept = gaps.take_type();
  CHECK(kept.native() == gaps.type());
  CHECK_FALSE(gaps.derived());
}

TEST_CASE("types own what they hold") {
  mpi::datatype first = mpi::contiguous_type(3, MPI_INT);
  mpi::datatype second = std::move(first);
  CHECK_FALSE(first);
  CHECK(size_of(second.native()) == 12);
  second = mpi::contiguous_type(4, MPI_INT);
  CHECK(size_of(second.native()) == 16);
  MPI_Datatype raw = second.release();
  CHECK_FALSE(second);
  MPI_Type_free(&raw);
}

TEST_CASE("counts beyond 2^31 have types of the right size on every MPI") {
  const std::size_t large = (std::size_t{1} << 31) + 12345;
  const auto exact_size = [](const mpi::datatype& type) {
    MPI_Count size = 0;
    MPI_Type_size_x(type.native(), &size);
    return static_cast<std::size_t>(size);
  };
  CHECK(exact_size(mpi::contiguous_type(large, MPI_DOUBLE)) == large * 8);
  CHECK(exact_size(mpi::contiguous_type(std::size_t{1} << 32, MPI_BYTE)) == std::size_t{1} << 32);
  CHECK(exact_size(mpi::strided_type(large, 0, 2, MPI_BYTE)) == large * 2);
  CHECK(exact_size(mpi::strided_type(3, 5, large, MPI_BYTE)) == large * 3);
  const mpi::datatype whole = mpi::contiguous_type(large, MPI_INT);
  CHECK(extent_of(whole.native()) == static_cast<MPI_Aint>(large * 4));

  char byte = 0;
  const auto view = cohort::contiguous_view(&byte, large);  // never read: only described
  const mpi::layout folded(view, mpi::large_count::fold);
  CHECK(folded.count() == 1);
  CHECK(folded.derived());
  const mpi::layout kept(view);
  CHECK(kept.fits_int() == !mpi::has_large_counts);
  CHECK((kept.count() == 1) == !mpi::has_large_counts);
}

TEST_CASE("an empty status is that of no message") {
  const cohort::status empty;
  CHECK(empty.source() == cohort::any_source);
  CHECK(empty.tag() == cohort::any_tag);
  CHECK(empty.bytes() == 0);
  CHECK(empty.count<double>() == 0);
  CHECK_FALSE(empty.cancelled());
}

TEST_CASE("a message that is no whole number of elements is not rounded") {
  std::vector<char> three(3);
  std::vector<char> room(8);
  const auto status = transfer(view_of(three), view_of(room));
  CHECK(status.bytes() == 3);
  CHECK_THROWS_AS(status.count<short>(), cohort::error);
}
