#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/webp_decoder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::StartsWith;
using ::testing::Throws;

TEST(WebpDecoderAbsent, NamesTheFileAndWhatToInstall) {
  EXPECT_THAT([] { decode_webp({}, "photos/cat/1.webp"); },
              Throws<DataError>(Property(
                  &DataError::what,
                  AllOf(StartsWith("photos/cat/1.webp: cannot read WebP images"),
                        HasSubstr("install libwebp-dev and build Lockstep again"), HasSubstr("PNG")))));
}

}  // namespace
}  // namespace lockstep
