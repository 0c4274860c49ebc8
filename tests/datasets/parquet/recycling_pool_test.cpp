#include "lockstep/datasets/parquet/internal/recycling_pool.h"

#include <arrow/memory_pool.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr int64_t kLarge = int64_t{1} << 20;

TEST(RecyclingPool, GivesAPieceOfNearlyTheSameSizeAgain) {
  RecyclingPool pool(arrow::default_memory_pool(), 4 * kLarge);
  uint8_t* first = nullptr;
  ASSERT_TRUE(pool.Allocate(kLarge, &first).ok());
  pool.Free(first, kLarge);
  EXPECT_EQ(pool.idle_bytes(), kLarge);
  uint8_t* second = nullptr;
  ASSERT_TRUE(pool.Allocate(kLarge - 10, &second).ok());
  EXPECT_EQ(second, first);
  EXPECT_EQ(pool.idle_bytes(), 0);
  // A piece that is shrunk a little is the same one; for a quarter of the size, there is a smaller one.
  ASSERT_TRUE(pool.Reallocate(kLarge - 10, kLarge - 20, &second).ok());
  EXPECT_EQ(second, first);
  ASSERT_TRUE(pool.Reallocate(kLarge - 20, kLarge / 4, &second).ok());
  EXPECT_NE(second, first);
  EXPECT_EQ(pool.idle_bytes(), kLarge);
  pool.Free(second, kLarge / 4);
  EXPECT_EQ(pool.idle_bytes(), kLarge + kLarge / 4);
  EXPECT_EQ(pool.bytes_allocated(), 0);
  EXPECT_EQ(pool.max_memory(), kLarge + kLarge / 4 - 20);  // both, while the bytes are moved
  // A piece that is a quarter larger is given, too, but none that is larger than that.
  ASSERT_TRUE(pool.Allocate(kLarge / 5, &first).ok());
  EXPECT_EQ(first, second);
  uint8_t* third = nullptr;
  ASSERT_TRUE(pool.Allocate(kLarge / 2, &third).ok());
  EXPECT_EQ(pool.idle_bytes(), kLarge);
  pool.Free(first, kLarge / 5);
  pool.Free(third, kLarge / 2);
  EXPECT_EQ(pool.idle_bytes(), kLarge + kLarge / 4 + kLarge / 2);
}

TEST(RecyclingPool, KeepsNoMoreThanItsLimit) {
  RecyclingPool pool(arrow::default_memory_pool(), 2 * kLarge);
  std::vector<uint8_t*> pieces(5);
  for (uint8_t*& piece : pieces) ASSERT_TRUE(pool.Allocate(kLarge, &piece).ok());
  for (uint8_t* piece : pieces) pool.Free(piece, kLarge);
  EXPECT_EQ(pool.idle_bytes(), 2 * kLarge);
  // The newest size is kept in the place of others.
  uint8_t* other = nullptr;
  ASSERT_TRUE(pool.Allocate(kLarge / 2, &other).ok());
  pool.Free(other, kLarge / 2);
  EXPECT_EQ(pool.idle_bytes(), kLarge + kLarge / 2);
}

TEST(RecyclingPool, GivesBackWhatItMayNoLongerKeep) {
  RecyclingPool pool(arrow::default_memory_pool(), 0);
  const auto idle_after_two = [&pool] {
    std::vector<uint8_t*> pieces(2);
    for (uint8_t*& piece : pieces) EXPECT_TRUE(pool.Allocate(kLarge, &piece).ok());
    for (uint8_t* piece : pieces) pool.Free(piece, kLarge);
    return pool.idle_bytes();
  };
  EXPECT_EQ(idle_after_two(), 0);
  pool.change_most(kLarge);
  EXPECT_EQ(idle_after_two(), kLarge);
  pool.change_most(kLarge);
  EXPECT_EQ(idle_after_two(), 2 * kLarge);
  pool.change_most(-kLarge);
  EXPECT_EQ(pool.idle_bytes(), kLarge);
  pool.change_most(-kLarge);
  EXPECT_EQ(pool.idle_bytes(), 0);
}

TEST(RecyclingPool, LetsNobodyWriteIntoAnothersPiece) {
  RecyclingPool pool(arrow::default_memory_pool(), 8 * kLarge);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&pool, thread] {
      std::mt19937_64 random(static_cast<uint64_t>(thread));
      struct Piece {
        uint8_t* data = nullptr;
        int64_t size = 0;
        uint8_t mark = 0;
      };
      const auto is_whole = [](const Piece& piece) {
        for (int64_t i = 0; i < piece.size; i += 997)
          if (piece.data[i] != piece.mark) return false;
        return true;
      };
      std::vector<Piece> pieces;
      for (int step = 0; step < 400; ++step) {
        const auto size = static_cast<int64_t>(random() % (kLarge / 2));
        if (pieces.size() < 5) {
          Piece piece{.size = size, .mark = static_cast<uint8_t>(random())};
          ASSERT_TRUE(pool.Allocate(size, &piece.data).ok());
          EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data) % 64, 0U);
          std::memset(piece.data, piece.mark, static_cast<size_t>(size));
          pieces.push_back(piece);
        } else if (Piece& piece = pieces[random() % pieces.size()]; random() % 2) {
          ASSERT_TRUE(pool.Reallocate(piece.size, size, &piece.data).ok());
          const int64_t kept = std::min(piece.size, size);
          piece.size = kept;
          EXPECT_TRUE(is_whole(piece));
          piece.size = size;
          std::memset(piece.data, piece.mark, static_cast<size_t>(size));
        } else {
          EXPECT_TRUE(is_whole(piece));
          pool.Free(piece.data, piece.size);
          piece = pieces.back();
          pieces.pop_back();
        }
      }
      for (const Piece& piece : pieces) {
        EXPECT_TRUE(is_whole(piece));
        pool.Free(piece.data, piece.size);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(pool.bytes_allocated(), 0);
  EXPECT_LE(pool.idle_bytes(), 8 * kLarge);
}

}  // namespace
}  // namespace lockstep
