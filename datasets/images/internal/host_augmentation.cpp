#include "lockstep/datasets/images/internal/host_augmentation.h"

#include <algorithm>
#include <cstddef>

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

template <int kValues>
void fill(float* to, int64_t pixels, const float* pixel) {
  for (int64_t i = 0; i < pixels; ++i)
    for (int k = 0; k < kValues; ++k) to[i * kValues + k] = pixel[k];
}

/// Crops and mirrors.
template <int kValues>
void shift(const Plane& plane, const ImageChange& change) {
  const auto rows = static_cast<int64_t>(change.row_shift),
             columns = static_cast<int64_t>(change.column_shift);
  const int64_t width = plane.width;
  const bool is_mirrored = change.is_mirrored != 0;
  // Columns of the result [begin, end) are from inside the image.
  const int64_t begin = std::clamp<int64_t>(is_mirrored ? columns : -columns, 0, width);
  const int64_t end = std::clamp<int64_t>(is_mirrored ? width + columns : width - columns, begin, width);
  for (int64_t y = 0; y < plane.height; ++y) {
    float* to = plane.result + y * width * kValues;
    const int64_t row = y + rows;
    if (row < 0 || row >= plane.height) {
      fill<kValues>(to, width, plane.black);
      continue;
    }
    const float* from = plane.image + row * width * kValues;
    fill<kValues>(to, begin, plane.black);
    if (is_mirrored) {
      for (int64_t x = begin; x < end; ++x) {
        const float* pixel = from + (width - 1 - x + columns) * kValues;
        for (int k = 0; k < kValues; ++k) to[x * kValues + k] = pixel[k];
      }
    } else if (begin < end) {
      std::copy(from + (begin + columns) * kValues, from + (end + columns) * kValues, to + begin * kValues);
    }
    fill<kValues>(to + end * kValues, width - end, plane.black);
  }
}

/// Returns the largest whole number that is not above `value`. std::floor() is a call on older processors.
int64_t floor_of(float value) {
  const auto whole = static_cast<int64_t>(value);
  return whole - (static_cast<float>(whole) > value ? 1 : 0);
}

/// Crops, mirrors and rotates. Interpolates between pixels of the cropped image, whose surroundings are
/// black.
template <int kValues>
void rotate(const Plane& plane, const ImageChange& change) {
  const int64_t height = plane.height, width = plane.width;
  const auto rows = static_cast<int64_t>(change.row_shift),
             columns = static_cast<int64_t>(change.column_shift);
  const bool is_mirrored = change.is_mirrored != 0;
  const auto middle_x = static_cast<float>(width - 1) / 2, middle_y = static_cast<float>(height - 1) / 2;
  // The part of the cropped image that is from inside the image.
  const int64_t left_end = std::clamp<int64_t>(is_mirrored ? columns : -columns, 0, width);
  const int64_t right_end = std::clamp<int64_t>(is_mirrored ? width + columns : width - columns, 0, width);
  const int64_t top_end = std::clamp<int64_t>(-rows, 0, height);
  const int64_t bottom_end = std::clamp<int64_t>(height - rows, 0, height);
  const int64_t step = is_mirrored ? -kValues : kValues, stride = width * kValues;
  const int64_t first = rows * stride + ((is_mirrored ? width - 1 : 0) + columns) * kValues;
  const auto pixel_at = [&](int64_t y, int64_t x) {
    const bool is_inside = y >= top_end && y < bottom_end && x >= left_end && x < right_end;
    return is_inside ? plane.image + (first + y * stride + x * step) : plane.black;
  };
  for (int64_t y = 0; y < height; ++y) {
    float* to = plane.result + y * stride;
    const float down = static_cast<float>(y) - middle_y;
    for (int64_t x = 0; x < width; ++x, to += kValues) {
      const float right = static_cast<float>(x) - middle_x;
      const float from_x = change.cosine * right - change.sine * down + middle_x;
      const float from_y = change.sine * right + change.cosine * down + middle_y;
      const int64_t column = floor_of(from_x), row = floor_of(from_y);
      const float part_x = from_x - static_cast<float>(column), part_y = from_y - static_cast<float>(row);
      const auto interpolate = [&](const float* a, const float* b, const float* c, const float* d) {
        for (int k = 0; k < kValues; ++k) {
          const float above = a[k] * (1 - part_x) + b[k] * part_x;
          const float below = c[k] * (1 - part_x) + d[k] * part_x;
          to[k] = above * (1 - part_y) + below * part_y;
        }
      };
      if (row >= top_end && row + 1 < bottom_end && column >= left_end && column + 1 < right_end) {
        const float* corner = plane.image + (first + row * stride + column * step);
        interpolate(corner, corner + step, corner + stride, corner + stride + step);
      } else {
        interpolate(pixel_at(row, column), pixel_at(row, column + 1), pixel_at(row + 1, column),
                    pixel_at(row + 1, column + 1));
      }
    }
  }
}

template <int kValues>
void move(const Plane& plane, const ImageChange& change, bool rotates) {
  if (rotates) {
    rotate<kValues>(plane, change);
  } else {
    shift<kValues>(plane, change);
  }
}

float within(float value) {
  return std::min(std::max(value, 0.0F), 1.0F);
}

struct Colour {
  float red, green, blue;
};

/// ITU-R BT.601, as torchvision rounds it.
float grey_of(const Colour& colour) {
  return 0.2989F * colour.red + 0.587F * colour.green + 0.114F * colour.blue;
}

/// Turns the hue of the hexcone model (Smith, Color Gamut Transform Pairs, 1978).
Colour with_hue(const Colour& colour, float turn) {
  const auto& [red, green, blue] = colour;
  const float most = std::max(std::max(red, green), blue);
  const float range = most - std::min(std::min(red, green), blue);
  const float difference = most == red ? green - blue : most == green ? blue - red : red - green;
  const float offset = most == red ? 0.0F : most == green ? 2.0F : 4.0F;
  // In sixths of the circle, from 0 to 6. The hue of grey does not matter.
  float hue = offset + (range > 0 ? difference / range : 0.0F) + 6 * turn;
  hue += hue < 0 ? 6.0F : 0.0F;
  hue -= hue >= 6 ? 6.0F : 0.0F;
  // Each channel falls from most to least over a sixth, and is `shift` sixths from the hue.
  const auto channel = [&](float shift) {
    const float place = hue + shift;
    const float k = place >= 6 ? place - 6 : place;
    return most - range * std::max(0.0F, std::min(std::min(k, 4 - k), 1.0F));
  };
  return {channel(5), channel(3), channel(1)};
}

Colour blend(const Colour& colour, float with, float factor) {
  const float rest = (1 - factor) * with;
  return {within(factor * colour.red + rest), within(factor * colour.green + rest),
          within(factor * colour.blue + rest)};
}

/// Pixels with their channels side by side, or each channel in a plane of its own.
template <bool kInterleaved>
struct Pixels {
  float* first;
  int64_t count;

  float& value(int64_t i, int64_t channel) const {
    return first[kInterleaved ? 3 * i + channel : channel * count + i];
  }
  Colour at(int64_t i) const { return {value(i, 0), value(i, 1), value(i, 2)}; }
  void set(int64_t i, const Colour& colour) const {
    value(i, 0) = colour.red;
    value(i, 1) = colour.green;
    value(i, 2) = colour.blue;
  }
};

void change_grey(const HostAugmentation& all, const ImageChange& change, float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    float& value = values[i];
    value = within((value * all.stddev[0] + all.mean[0]) * change.brightness);
    sum += value;
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(count));
  const float rest = (1 - change.contrast) * mean;
  for (int64_t i = 0; i < count; ++i) {
    float& value = values[i];
    value = (within(change.contrast * value + rest) - all.mean[0]) / all.stddev[0];
  }
}

template <bool kInterleaved>
void change_colours(const HostAugmentation& all, const ImageChange& change,
                    const Pixels<kInterleaved>& pixels) {
  const auto [mean_red, mean_green, mean_blue] = all.mean;
  const auto [red, green, blue] = all.stddev;
  double sum = 0;
  for (int64_t i = 0; i < pixels.count; ++i) {
    Colour colour = pixels.at(i);
    colour = {within((colour.red * red + mean_red) * change.brightness),
              within((colour.green * green + mean_green) * change.brightness),
              within((colour.blue * blue + mean_blue) * change.brightness)};
    pixels.set(i, colour);
    sum += grey_of(colour);
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(pixels.count));
  for (int64_t i = 0; i < pixels.count; ++i) {
    Colour colour = blend(pixels.at(i), mean, change.contrast);
    colour = blend(colour, grey_of(colour), change.saturation);
    if (change.hue != 0) colour = with_hue(colour, change.hue);
    pixels.set(i, {(colour.red - mean_red) / red, (colour.green - mean_green) / green,
                   (colour.blue - mean_blue) / blue});
  }
}

}  // namespace

void HostAugmentation::change(const float* image, const ImageChange& change, float* result) const {
  const int64_t count = height * width;
  std::array<float, 3> black{};
  for (size_t i = 0; i < black.size(); ++i) black[i] = -mean[i] / stddev[i];
  const bool is_interleaved = channels == 3 && has_channels_last;
  if (is_interleaved) {
    move<3>({image, result, black.data(), height, width}, change, rotates);
  } else {
    for (int64_t i = 0; i < channels; ++i)
      move<1>({image + i * count, result + i * count, &black[static_cast<size_t>(i)], height, width}, change,
              rotates);
  }
  if (!changes_colours) return;
  if (channels == 1) {
    change_grey(*this, change, result, count);
  } else if (is_interleaved) {
    change_colours(*this, change, Pixels<true>{result, count});
  } else {
    change_colours(*this, change, Pixels<false>{result, count});
  }
}

}  // namespace lockstep
