// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A damped pendulum that swings freely. The weaker the damping, the more there is to
/// compute.

#include <cmath>

namespace support {

struct pendulum {
  double damping = 0, angle = 0;  // at the start, in radians
};

/// Seconds until it has lost all but a ten-thousandth of its energy, or `stop()` is true. `step`:
/// of the integration by Runge and Kutta, in seconds.
double settling_time(const pendulum& one, double step, const auto& stop) {
  double angle = one.angle, speed = 0, time = 0;
  const auto pull = [&](double a, double v) { return -std::sin(a) - one.damping * v; };
  const auto energy = [&] { return speed * speed / 2 + 1 - std::cos(angle); };
  for (const double little = 1e-4 * energy(); energy() > little && !stop();) {
    for (int i = 0; i < 10; ++i, time += step) {
      const double h = step / 2, a1 = pull(angle, speed), v2 = speed + h * a1;
      const double a2 = pull(angle + h * speed, v2), v3 = speed + h * a2;
      const double a3 = pull(angle + h * v2, v3), v4 = speed + step * a3;
      const double a4 = pull(angle + step * v3, v4);
      angle += step / 6 * (speed + 2 * v2 + 2 * v3 + v4);
      speed += step / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
    }
  }
  return time;
}

}  // namespace support
