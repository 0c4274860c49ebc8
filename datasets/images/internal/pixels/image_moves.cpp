#include "lockstep/datasets/images/internal/pixels/image_moves.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace lockstep {
namespace {

/// One channel of an image, or with pixels of several values all of them.
struct Plane {
  const float* image;
  float* result;
  const float* black;  ///< a pixel
  int64_t height;
  int64_t width;
};

/// The part of a cropped and mirrored image that is from inside the image, and where its pixels are.
struct Crop {
  Crop(const ImageMove& move, const ImageChange& change, int64_t values) {
    const auto rows = static_cast<int64_t>(change.row_shift),
               columns = static_cast<int64_t>(change.column_shift);
    const bool is_mirrored = change.is_mirrored != 0;
    left = std::clamp<int64_t>(is_mirrored ? columns : -columns, 0, move.width);
    right = std::clamp<int64_t>(is_mirrored ? move.width + columns : move.width - columns, left, move.width);
    top = std::clamp<int64_t>(-rows, 0, move.height);
    bottom = std::clamp<int64_t>(move.height - rows, top, move.height);
    step = is_mirrored ? -values : values;
    stride = move.width * values;
    first = rows * stride + ((is_mirrored ? move.width - 1 : 0) + columns) * values;
  }

  int64_t left, right, top, bottom;  ///< without the last ones
  int64_t step, stride;              ///< between columns and rows, in values
  int64_t first;                     ///< the pixel of row 0 and column 0
};

template <int kValues>
void fill(float* to, int64_t pixels, const float* pixel) {
  for (int64_t i = 0; i < pixels; ++i)
    for (int k = 0; k < kValues; ++k) to[i * kValues + k] = pixel[k];
}

/// Four neighbouring values. Arithmetic is done value by value.
using Four = float __attribute__((vector_size(16)));

template <int kValues>
Four load(const float* from) {
  // A copy of three values would be read back from memory before all of it is there.
  if constexpr (kValues == 3) return Four{from[0], from[1], from[2], 0};
  Four result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

/// Copies pixels in reverse order, the last one of which is at `from`.
template <int kValues>
void mirror(const float* __restrict from, int64_t pixels, float* __restrict to) {
  if constexpr (kValues == 1) {
    for (int64_t x = 0; x < pixels; ++x) to[x] = from[-x];
  } else {
    if (pixels == 0) return;
    const auto copy = [&](int64_t x) {
      std::memcpy(to + x * kValues, from - x * kValues, kValues * sizeof(float));
    };
    copy(0);
    // Four values are copied at once. The last of them belongs to a pixel that is copied afterwards.
    for (int64_t x = 1; x < pixels - 1; ++x) {
      const Four values = load<4>(from - x * kValues);
      std::memcpy(to + x * kValues, &values, sizeof values);
    }
    copy(pixels - 1);
  }
}

template <int kValues>
void shift(const Plane& plane, const Crop& crop) {
  const int64_t width = plane.width, inside = crop.right - crop.left;
  for (int64_t y = 0; y < plane.height; ++y) {
    float* to = plane.result + y * crop.stride;
    if (y < crop.top || y >= crop.bottom || inside == 0) {
      fill<kValues>(to, width, plane.black);
      continue;
    }
    const float* from = plane.image + (crop.first + y * crop.stride + crop.left * crop.step);
    fill<kValues>(to, crop.left, plane.black);
    if (crop.step < 0) {
      mirror<kValues>(from, inside, to + crop.left * kValues);
    } else {
      std::copy(from, from + inside * kValues, to + crop.left * kValues);
    }
    fill<kValues>(to + crop.right * kValues, width - crop.right, plane.black);
  }
}

/// Pixels of a row that are found at once.
constexpr int64_t kFoundPixels = 128;

/// The sources of pixels of the result: each is a mean of four pixels, of which this is the upper left one,
/// weighted by the parts of a pixel's width and height.
struct Sources {
  alignas(64) int32_t column[kFoundPixels];
  alignas(64) int32_t row[kFoundPixels];
  alignas(64) float part_x[kFoundPixels];
  alignas(64) float part_y[kFoundPixels];
};

/// Splits a coordinate into a whole number and the part that is left. Those outside the image become the next
/// ones that are outside.
void split(float coordinate, float most, int32_t& whole, float& part) {
  float kept = coordinate > -1 ? coordinate : -1.0F;  // not a number: -1
  kept = kept < most ? kept : most;
  const auto towards_zero = static_cast<int32_t>(kept);
  const int32_t below = towards_zero - (static_cast<float>(towards_zero) > kept ? 1 : 0);
  whole = below;
  part = kept - static_cast<float>(below);
}

/// Finds `count` pixels of row `y`, from column `begin` on.
void find(const ImageMove& move, const ImageChange& change, int64_t y, int64_t begin, int64_t count,
          Sources& sources) {
  const auto middle_x = static_cast<float>(move.width - 1) / 2,
             middle_y = static_cast<float>(move.height - 1) / 2;
  const auto most_x = static_cast<float>(move.width), most_y = static_cast<float>(move.height);
  const float cosine = change.cosine, sine = change.sine;
  const float down = static_cast<float>(y) - middle_y;
  const float sine_down = sine * down, cosine_down = cosine * down;
  const auto first = static_cast<int32_t>(begin);
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {
    const float right = static_cast<float>(first + i) - middle_x;
    split(cosine * right - sine_down + middle_x, most_x, sources.column[i], sources.part_x[i]);
    split(sine * right + cosine_down + middle_y, most_y, sources.row[i], sources.part_y[i]);
  }
}

/// Pixels from `begin` to before `end`.
struct Range {
  int64_t begin, end;
};

/// Returns those of `count` pixels whose four pixels all lie inside the image. They are neighbours, as they
/// are on a line.
Range inside_pixels(const Crop& crop, const Sources& sources, int64_t count) {
  const auto is_inside = [&](int64_t i) {
    return sources.row[i] >= crop.top && sources.row[i] + 1 < crop.bottom && sources.column[i] >= crop.left &&
           sources.column[i] + 1 < crop.right;
  };
  Range inside{0, count};
  while (inside.begin < count && !is_inside(inside.begin)) ++inside.begin;
  while (inside.end > inside.begin && !is_inside(inside.end - 1)) --inside.end;
  return inside;
}

/// The upper left, upper right, lower left and lower right pixel that a pixel of the result is a mean of.
struct Corners {
  const float *a, *b, *c, *d;
};

/// Calls `use(i, corners, whether a value follows each of them in memory)` for each pixel of the result.
template <typename Use>
void for_each_corners(const Plane& plane, const Crop& crop, const Sources& sources, int64_t count,
                      const Use& use) {
  const auto pixel_at = [&](int64_t y, int64_t x) {
    const bool is_inside = y >= crop.top && y < crop.bottom && x >= crop.left && x < crop.right;
    return is_inside ? plane.image + (crop.first + y * crop.stride + x * crop.step) : plane.black;
  };
  const auto at_edge = [&](int64_t i) {
    const int64_t row = sources.row[i], column = sources.column[i];
    if (row + 1 < crop.top || row >= crop.bottom || column + 1 < crop.left || column >= crop.right) {
      use(i, Corners{plane.black, plane.black, plane.black, plane.black}, std::false_type());
      return;
    }
    const Corners corners{pixel_at(row, column), pixel_at(row, column + 1), pixel_at(row + 1, column),
                          pixel_at(row + 1, column + 1)};
    use(i, corners, std::false_type());
  };
  const Range inside = inside_pixels(crop, sources, count);
  const float* const last = plane.image + (plane.height * crop.stride - std::abs(crop.step));
  const int64_t to_last = crop.stride + std::max<int64_t>(crop.step, 0);
  for (int64_t i = 0; i < inside.begin; ++i) at_edge(i);
  for (int64_t i = inside.begin; i < inside.end; ++i) {
    const float* a =
        plane.image + (crop.first + sources.row[i] * crop.stride + sources.column[i] * crop.step);
    if (a + to_last == last) {
      at_edge(i);
    } else {
      use(i, Corners{a, a + crop.step, a + crop.stride, a + (crop.stride + crop.step)}, std::true_type());
    }
  }
  for (int64_t i = inside.end; i < count; ++i) at_edge(i);
}

/// Interpolates `count` pixels of one channel.
void interpolate_values(const Plane& plane, const Crop& crop, const Sources& sources, int64_t count,
                        float* __restrict to) {
  alignas(64) float corners[4][kFoundPixels];
  for_each_corners(plane, crop, sources, count, [&](int64_t i, const Corners& of, auto) {
    corners[0][i] = *of.a;
    corners[1][i] = *of.b;
    corners[2][i] = *of.c;
    corners[3][i] = *of.d;
  });
  for (int64_t i = 0; i < count; ++i) {
    const float x = sources.part_x[i], y = sources.part_y[i];
    const float above = corners[0][i] * (1 - x) + corners[1][i] * x;
    const float below = corners[2][i] * (1 - x) + corners[3][i] * x;
    to[i] = above * (1 - y) + below * y;
  }
}

/// Interpolates `count` pixels of three values.
void interpolate_pixels(const Plane& plane, const Crop& crop, const Sources& sources, int64_t count,
                        float* to) {
  // Four values are read and written at once, the last of which is not used.
  alignas(64) float pixels[3 * kFoundPixels + 1];
  for_each_corners(plane, crop, sources, count, [&](int64_t i, const Corners& of, auto has_fourth) {
    constexpr int kRead = has_fourth ? 4 : 3;
    const float x = sources.part_x[i], y = sources.part_y[i];
    const Four above = load<kRead>(of.a) * (1 - x) + load<kRead>(of.b) * x;
    const Four below = load<kRead>(of.c) * (1 - x) + load<kRead>(of.d) * x;
    const Four mean = above * (1 - y) + below * y;
    std::memcpy(pixels + 3 * i, &mean, sizeof mean);
  });
  std::memcpy(to, pixels, static_cast<size_t>(3 * count) * sizeof(float));
}

/// Returns each plane of the image in turn.
template <typename Use>
void for_each_plane(const ImageMove& move, const Use& use) {
  const int64_t count = move.height * move.width;
  for (int64_t i = 0; i < (move.is_interleaved ? 1 : move.channels); ++i)
    use(Plane{move.image + i * count, move.result + i * count, move.black + i, move.height, move.width});
}

bool has_pixels_of_three(const ImageMove& move) {
  return move.is_interleaved && move.channels == 3;
}

}  // namespace

void shift_image(const ImageMove& move, const ImageChange& change) {
  const Crop crop(move, change, has_pixels_of_three(move) ? 3 : 1);
  for_each_plane(move, [&](const Plane& plane) {
    if (has_pixels_of_three(move)) {
      shift<3>(plane, crop);
    } else {
      shift<1>(plane, crop);
    }
  });
}

void rotate_image(const ImageMove& move, const ImageChange& change) {
  const Crop crop(move, change, has_pixels_of_three(move) ? 3 : 1);
  Sources sources;
  for (int64_t y = 0; y < move.height; ++y) {
    for (int64_t x = 0; x < move.width; x += kFoundPixels) {
      const int64_t count = std::min(kFoundPixels, move.width - x);
      find(move, change, y, x, count, sources);
      for_each_plane(move, [&](const Plane& plane) {
        if (has_pixels_of_three(move)) {
          interpolate_pixels(plane, crop, sources, count, plane.result + y * crop.stride + 3 * x);
        } else {
          interpolate_values(plane, crop, sources, count, plane.result + y * crop.stride + x);
        }
      });
    }
  }
}

}  // namespace lockstep
