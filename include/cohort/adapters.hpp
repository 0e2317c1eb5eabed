// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer adapters: objects of other libraries as buffers, by `cohort::buffer_traits`. Each
/// library has a header of its own.
///
/// - adapters/mdspan.hpp: `std::mdspan` and its reference implementation; it needs neither,
/// - adapters/eigen.hpp: matrices, vectors, arrays and what refers into them,
/// - adapters/kokkos.hpp: `Kokkos::View`.
///
/// The first comes with this header. The others need their library, so a program includes them by
/// name. docs/reference.md shows how to write the traits of a class of your own.

#include <cohort/adapters/mdspan.hpp>
