/* European calls by Black and Scholes (the third of AMM's benchmarks), N options: five loads and one store per option
   in the program's own code; what libm accesses is not seen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct option { double spot, strike, rate, volatility, years; };

static double cumulative(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

__attribute__((noinline)) static void price(double *prices, const struct option *options, int n) {
    for (int i = 0; i < n; i++) {
        double spot = options[i].spot, strike = options[i].strike, rate = options[i].rate;
        double volatility = options[i].volatility, years = options[i].years;
        double root = volatility * sqrt(years);
        double d1 = (log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / root;
        prices[i] = spot * cumulative(d1) - strike * exp(-rate * years) * cumulative(d1 - root);
    }
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 16;
    struct option *options = malloc((size_t)n * sizeof *options);
    double *prices = malloc((size_t)n * sizeof *prices);
    for (int i = 0; i < n; i++) options[i] = (struct option){100, 90 + i % 20, 0.02, 0.3, 0.5 + i % 3};
    price(prices, options, n);
    printf("%.6f\n", prices[n - 1]);
    return 0;
}
