#include "lockstep/datasets/images/internal/idx_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::Property;
using testing::TemporaryFolder;
using ::testing::Throws;

constexpr IdxOptions kThree{.num_dimensions = 3};

Bytes make_idx(const std::vector<uint32_t>& dimensions, const Bytes& values) {
  Bytes out = {0, 0, 8, static_cast<uint8_t>(dimensions.size())};
  for (const uint32_t dimension : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(dimension >> shift));
  }
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes in = bytes;
  Bytes out(deflateBound(&stream, in.size()) + 64);
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxFileTest : public ::testing::Test {
 protected:
  void expect_refused(const Bytes& bytes, const std::string& text,
                      const std::string& name = "images-idx3") const {
    const std::string path = folder_.write(name, bytes);
    EXPECT_THAT([&] { read_idx(path, kThree); },
                Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr(name), HasSubstr(text)))));
  }

  TemporaryFolder folder_;
  const Bytes values_ = testing::make_image(2, 3, 4).pixels;
  const Bytes idx_ = make_idx({2, 3, 4}, values_);
};

TEST_F(IdxFileTest, ReadsPlainAndCompressedFilesAlike) {
  for (const auto& path : {folder_.write("plain", idx_), folder_.write("packed.gz", gzip(idx_)),
                           folder_.write("packed_without_ending", gzip(idx_))}) {
    const IdxArray array = read_idx(path, kThree);
    EXPECT_EQ(array.dimensions, (std::vector<int64_t>{2, 3, 4})) << path;
    EXPECT_EQ(array.values, values_) << path;
  }
}

TEST_F(IdxFileTest, ReadsGzipOfSeveralMembers) {
  Bytes members = gzip(Bytes(idx_.begin(), idx_.begin() + 20));
  const Bytes second = gzip(Bytes(idx_.begin() + 20, idx_.end()));
  members.insert(members.end(), second.begin(), second.end());
  EXPECT_EQ(read_idx(folder_.write("members.gz", members), kThree).values, values_);
}

TEST_F(IdxFileTest, RefusesAWrongMagicNumberAndType) {
  Bytes wrong = idx_;
  wrong[0] = 0x50;
  expect_refused(wrong, "magic number: expected two zero bytes first, but got 0x50 0x00");
  wrong = idx_;
  wrong[2] = 0x0D;
  expect_refused(wrong, "value type: expected 0x08 (unsigned byte), but got 0x0d");
  wrong = idx_;
  wrong[3] = 1;
  expect_refused(wrong, "number of dimensions: expected 3, but got 1");
}

TEST_F(IdxFileTest, RefusesDimensionsWhoseProductOverflows) {
  // 2^32 x 2^32 wraps to 0 in 64 bits, and so does 65536^4.
  expect_refused(make_idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {}), "4294967295 x 4294967295 x 4294967295");
  expect_refused(make_idx({0x80000000, 0x80000000, 4}, {}), "dimensions: expected at most");
}

TEST_F(IdxFileTest, RefusesACountThatDoesNotMatchTheFile) {
  expect_refused(make_idx({3, 3, 4}, values_), "values: expected 36 bytes (3 x 3 x 4)");
  expect_refused(make_idx({1, 3, 4}, values_), "values: expected 12 bytes (1 x 3 x 4), but got more");
  expect_refused(gzip(make_idx({3, 3, 4}, values_)), "values: expected 36 bytes (3 x 3 x 4), but got 24");
  expect_refused(gzip(make_idx({1, 3, 4}, values_)), "but got more");
}

TEST_F(IdxFileTest, RefusesToAllocateMoreThanTheFileCanHold) {
  expect_refused(make_idx({60000, 28, 28}, {}),
                 "47040000 bytes (60000 x 28 x 28), but got a file that holds at most 16");
  expect_refused(gzip(make_idx({60000, 28, 28}, {})), "a file that holds at most");
  const std::string path = folder_.write("limited", idx_);
  EXPECT_THROW(read_idx(path, {.num_dimensions = 3, .max_bytes = 23}), DataError);
}

TEST_F(IdxFileTest, RefusesEveryTruncation) {
  for (const Bytes& whole : {idx_, gzip(idx_)}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      const auto path = folder_.write("short", std::span(whole).first(length));
      EXPECT_THROW(read_idx(path, kThree), DataError) << length << " of " << whole.size() << " bytes";
    }
  }
}

TEST_F(IdxFileTest, NeverReturnsAWrongValueForAFlippedBitInGzip) {
  const Bytes whole = gzip(idx_);
  for (size_t position = 0; position < whole.size(); ++position) {
    Bytes damaged = whole;
    damaged[position] ^= static_cast<uint8_t>(1 << position % 8);
    const std::string path = folder_.write("flipped", damaged);
    try {
      EXPECT_EQ(read_idx(path, kThree).values, values_) << "byte " << position;
    } catch (const DataError&) {
    }
  }
}

TEST_F(IdxFileTest, RefusesBadGzip) {
  expect_refused(idx_, "gzip", "images.gz");
  Bytes trailing = gzip(idx_);
  trailing.insert(trailing.end(), {1, 2, 3});
  expect_refused(trailing, "gzip", "images.gz");
}

TEST_F(IdxFileTest, NamesAMissingFileAndAFolder) {
  EXPECT_THAT([&] { read_idx(folder_.path() + "/missing", kThree); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("missing: cannot open: No such file"))));
  EXPECT_THAT([&] { read_idx(folder_.path(), kThree); },
              Throws<DataError>(
                  Property(&DataError::what, HasSubstr("expected a regular file, but it is a folder"))));
}

}  // namespace
}  // namespace lockstep
