// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Records which functions run between two places of a program that is compiled with
/// `-finstrument-functions`; walks.py reads the record.

namespace walk {

/// Functions are recorded from here on. `what` is 'w' for the walk itself, and 'i' for a time in
/// which nothing happens: what runs then is no part of the walk.
void begin(char what);

/// Up to here.
void end();

/// Writes the record to the file `$COHORT_WALK.<rank>`, if there is that variable.
void write(int rank);

}  // namespace walk
