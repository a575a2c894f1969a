// Virtual calls, and exceptions that leave two frames; each function says what one call of it accesses.
#include <cstdio>

struct Shape {
    virtual ~Shape() {}
    virtual double area() const = 0;
};
struct Square : Shape {
    double side = 2;
    double area() const override { return side * side; } // one load, or two
};
struct Disc : Shape {
    double radius = 1;
    double area() const override { return 3 * radius; } // one load
};

static int thrown, entered, left;

// load and store of thrown every third time
__attribute__((noinline)) static void inner(int i) {
    if (i % 3 == 0) {
        thrown++;
        throw i;
    }
}
// load and store of entered; of left only where inner returned
__attribute__((noinline)) static void outer(int i) {
    entered++;
    inner(i);
    left++;
}

__attribute__((noinline)) static double areas(const Shape *const *shapes, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += shapes[i]->area();
    return sum;
}

int main() {
    Square square;
    Disc disc;
    const Shape *shapes[] = {&square, &disc, &square, &square};
    double sum = areas(shapes, 4);
    int caught = 0;
    for (volatile int i = 0; i < 12; i++) {
        try {
            outer(i);
        } catch (int) {
            caught++;
        }
    }
    std::printf("%g %d %d %d %d\n", sum, thrown, entered, left, caught);
}
